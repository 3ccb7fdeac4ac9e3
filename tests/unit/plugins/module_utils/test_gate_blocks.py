# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps the gate from measuring, and what it only warns of."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_probe
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import Cluster, gate, node, settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": "degraded", "problems": ["row_remap_failed: GPU 3"]}, "row_remap_failed"),
        ({"state": "no_driver", "reason": "no nvidia-smi"}, "no nvidia-smi"),
        ({"mig": True}, "MIG"),
        ({"driver": "575.1"}, "driver is 575.1"),
        ({"gpus": 7}, "number of GPUs is 7"),
    ],
)
def test_facts_block(given: dict[str, Any], words: str) -> None:
    cluster = Cluster()
    nodes = {"n1": node("n1"), "n2": node("n2", **given), "n3": node("n3")}
    report = gate(cluster, nodes)
    assert report["verdict"] == "blocked"
    assert [entry["host"] for entry in report["blocked"]] == ["n2"]
    assert words in report["blocked"][0]["reason"]
    assert cluster.commands == [], "no GPU time is spent"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"memlock": "8192"}, "memlock"),
        ({"shm_mib": "64"}, "nccl_tests_min_shm_mib"),
        ({"binaries": "other"}, "binaries"),
        ({"libmpi": "other"}, "the MPI library"),
        ({"libnccl": "other"}, "the NCCL library"),
        ({"plugins": "other"}, "plugins (checksum) is other, on most nodes empty"),
        ({"nccl": "NCCL_IB_HCA=mlx5_9"}, "NCCL_IB_HCA=mlx5_9"),
        ({"busy": "4711 python"}, "other processes use its GPUs: 4711 python"),
        ({"missing": "libmpi.so.40"}, "libmpi.so.40 is missing"),
        ({"name": "stranger"}, "did not run there"),
        ({"acs": "0000:16:01.0 0000:38:01.0"}, "PCIe ACS at 0000:16:01.0"),
        ({"direct": "none"}, "NICs cannot reach GPU memory"),
    ],
)
def test_what_the_job_sees_blocks(given: dict[str, str], words: str) -> None:
    report = gate(Cluster(probe={"n2": given}), 3)
    assert report["verdict"] == "blocked"
    assert [entry["host"] for entry in report["blocked"]] == ["n2"]
    assert words in report["blocked"][0]["reason"]


def test_name_that_leads_back_to_the_node_blocks_mpirun_alone() -> None:
    views = {name: {"aliases": [name], "rdma": False, "product": "", "network": {}} for name in ("n1", "n2")}
    fields = {"missing": "", "shm_mib": "64000", "loopback": ""}
    found = {"n1": fields, "n2": {**fields, "loopback": "127.0.1.1"}}
    blocked, _accepted = _gate_probe.blocked_by_probe(views, found, settings(), "mpirun")
    assert [(one["host"], one["check"]) for one in blocked] == [("n2", "loopback")]
    assert "127.0.1.1" in blocked[0]["reason"]
    assert _gate_probe.blocked_by_probe(views, found, settings(), "slurm") == ([], [])


def test_closed_ports_are_a_warning() -> None:
    probe = {f"n{i}": {"address": f"10.0.0.{i}"} for i in range(1, 5)}
    report = gate(Cluster(probe=probe, ports="PORT\tn1\tn2\tok\n2: PORT\tn2\tn3\tNo route to host\n"))
    assert report["verdict"] == "pass"
    assert len(report["warnings"]) == 1
    assert "n2 does not reach n3 (10.0.0.3)" in report["warnings"][0]


def test_what_is_accepted_is_a_warning() -> None:
    found = {"n2": {"acs": "0000:16:01.0", "memlock": "64"}}
    report = gate(Cluster(probe=found), 3, accepted=["acs", "memlock"])
    assert report["verdict"] == "pass"
    assert [text.partition(":")[0] for text in report["warnings"]] == ["n2", "n2"]
    report = gate(Cluster(probe=found), 3, accepted=["acs"])
    assert "nccl_tests_accepted: [memlock]" in report["blocked"][0]["reason"]


@pytest.mark.parametrize(
    ("roce", "index", "words"),
    [
        ({"mlx5_0": [3]}, "", ""),
        ({"mlx5_0": [3]}, "3", ""),
        ({"mlx5_0": [3]}, "-1", ""),
        ({"mlx5_0": [3], "mlx5_1": []}, "", "mlx5_1 has no RoCE v2 GID"),
        ({"mlx5_0": [3, 5]}, "1", "NCCL_IB_GID_INDEX is 1, but routable RoCE v2 GIDs of mlx5_0 are at 3, 5"),
    ],
)
def test_gids_of_roce(roce: dict[str, list[int]], index: str, words: str) -> None:
    network = {"gbps": 400.0, "why": "NICs", "kind": "rdma", "nics": 8, "rails": {}, "roce": roce}
    nodes = {"n1": node("n1"), "n2": node("n2", network=network)}
    report = gate(Cluster(), nodes, environment={"NCCL_IB_GID_INDEX": index} if index else {})
    assert report["verdict"] == ("blocked" if words else "pass")
    assert not words or words in report["blocked"][0]["reason"]


def test_busy_nodes_block() -> None:
    report = gate(Cluster(salloc="Unable to allocate resources: Requested nodes are busy"))
    assert report["verdict"] == "blocked"
    assert "busy" in report["next_action"]


def test_an_allocation_that_ended_too_early_accuses_nobody() -> None:
    faults = {"n2": ("crash", None)}
    assert [culprit["host"] for culprit in gate(Cluster(nodes=faults), 3)["culprits"]] == ["n2"]
    report = gate(Cluster(nodes=faults, lost=True), 3)
    assert (report["verdict"], report["culprits"]) == ("blocked", [])
    assert "Slurm job 7, which held the nodes, ended before the gate did" in report["next_action"]
    assert gate(Cluster(lost=True), 3)["verdict"] == "pass", "what was measured to the end counts"
