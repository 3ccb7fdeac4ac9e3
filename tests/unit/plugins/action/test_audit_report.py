# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are compared with which."""

from __future__ import annotations

from ansible_collections.gpuops.cluster.plugins.action.audit_report import argument_spec, kinds_of

GROUPS = {
    "gpu_nodes": ["n1", "n2", "both"],
    "slurm_controllers": ["ctl", "both"],
    "all": ["n1", "n2", "ctl", "both", "x"],
}


def test_a_host_is_of_the_first_kind_that_it_is_in() -> None:
    hosts = dict.fromkeys(GROUPS["all"])
    wanted = {"n1": "gpu_nodes", "n2": "gpu_nodes", "both": "gpu_nodes", "ctl": "slurm_controllers"}
    assert kinds_of(hosts, GROUPS, ["gpu_nodes", "slurm_controllers", "login_nodes"]) == wanted
    assert kinds_of(hosts, GROUPS, ["slurm_controllers", "gpu_nodes"])["both"] == "slurm_controllers"


def test_hosts_outside_of_the_run_are_left_out() -> None:
    assert kinds_of({"n1": None}, GROUPS, ["gpu_nodes"]) == {"n1": "gpu_nodes"}


def test_options_are_those_of_the_documentation() -> None:
    spec = argument_spec()
    assert spec["report_dir"] == {"type": "path", "default": "reports"}
    assert all(set(option) <= {"type", "elements", "default", "required"} for option in spec.values())
