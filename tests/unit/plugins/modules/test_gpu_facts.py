# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, with a program that replays recordings."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.modules import gpu_facts
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures
from ansible_collections.gpuops.cluster.tests.unit.support.replay import NOWHERE, program

H100 = str(fixtures.ROOT / "nvidia-smi-xml/h100-sxm5-8x-driver570.86.xml")
TOPO = str(fixtures.ROOT / "nvidia-smi-topo/h100-sxm5-8x-8nic-driver570-spaces.txt")


def run_module(**options: Any) -> dict[str, Any]:
    """Run the module in an interpreter of its own; returns what it printed."""
    arguments = {"sysfs_root": NOWHERE, "proc_root": NOWHERE, **options}
    source = "import sys, json; sys.path[:0] = json.loads(sys.argv[1]); from runpy import run_module; " + (
        f"sys.argv = [sys.argv[0], sys.argv[2]]; run_module({gpu_facts.__name__!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, json.dumps(sys.path), json.dumps({"ANSIBLE_MODULE_ARGS": arguments})],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("check_mode", [False, True])
def test_facts_of_a_program(tmp_path: Path, check_mode: bool) -> None:
    done = run_module(nvidia_smi=program(tmp_path, H100, TOPO), _ansible_check_mode=check_mode)
    assert done["changed"] is False
    facts = done["ansible_facts"]["gpu"]
    assert facts["state"] == "ok" and facts["count"] == 8
    assert facts["topology"]["nvlink"] == {"links_per_gpu": 18, "generation": 4}
    assert facts["devices"][7]["cpus"] == "48-95,144-191"
    assert (tmp_path / "calls").read_text().splitlines() == ["-q -x", "topo -m"]


def test_a_program_that_hangs(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run_module(nvidia_smi=program(tmp_path, H100, before="sleep 60"), timeout=1)
    assert time.monotonic() - started < 6
    facts = done["ansible_facts"]["gpu"]
    assert facts["state"] == "no_answer" and "1 s" in facts["reason"]


def test_the_second_call_is_not_made_when_the_first_failed(tmp_path: Path) -> None:
    text = str(fixtures.ROOT / "nvidia-smi-text/error-no-driver-communication.txt")
    done = run_module(nvidia_smi=program(tmp_path, text, TOPO, rc=9))
    assert done["ansible_facts"]["gpu"]["state"] == "driver_not_loaded"
    assert (tmp_path / "calls").read_text().splitlines() == ["-q -x"]


def test_no_such_program(tmp_path: Path) -> None:
    done = run_module(nvidia_smi=str(tmp_path / "none"))
    assert done["ansible_facts"]["gpu"]["state"] == "no_gpu"


def test_little_is_added_to_the_time_of_the_two_calls(tmp_path: Path) -> None:
    smi = program(tmp_path, H100, TOPO, before="sleep 1")

    def overhead() -> float:
        """Seconds beyond the start of Python and the two calls."""
        started = time.monotonic()
        run_module(nvidia_smi=str(tmp_path / "none"))
        begun = time.monotonic()
        assert run_module(nvidia_smi=smi)["ansible_facts"]["gpu"]["state"] == "ok"
        return time.monotonic() - begun - (begun - started) - 2

    assert min(overhead() for _attempt in range(3)) < 2 * 0.3  # the best of three, for the machine may be busy
