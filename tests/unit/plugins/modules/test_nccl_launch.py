# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A round of launches, with real processes: to its end, in the background, and when it dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.modules import nccl_launch


def spec(name: str, script: str, timeout: float = 60.0) -> dict[str, Any]:
    command = ["sh", "-c", script]
    return {"name": name, "command": command, "environment": {"WHO": name}, "timeout": timeout, "cleanup": []}


def call(**given: Any) -> dict[str, Any]:
    usual = {"launches": None, "parallel": 8, "keep": 1000, "wait": 0.0, "job": None, "lease": None}
    return nccl_launch.run({**usual, **given})


def until(truth: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not truth():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_whole_round_keeps_the_order() -> None:
    done = call(launches=[spec("a", 'sleep 0.3; echo "$WHO"'), spec("b", "exit 3"), spec("c", "no such program")])
    assert done["finished"]
    assert [(one["name"], one["rc"]) for one in done["outcomes"]] == [("a", 0), ("b", 3), ("c", 127)]
    assert done["outcomes"][0]["stdout"] == "a\n"


def test_a_round_in_the_background_tells_how_far_it_is(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = f'while [ ! -e {gate} ]; do sleep 0.05; done; echo "$WHO"'
    first = call(launches=[spec("quick", "true"), spec("slow", slow)], wait=0.5)
    assert (first["finished"], first["outcomes"]) == (False, [])
    until(lambda: call(job=first["job"], wait=0.1)["ended"] == ["quick"])
    gate.touch()
    last = call(job=first["job"], wait=60.0)
    assert last["finished"]
    assert [(one["name"], one["rc"], one["stdout"]) for one in last["outcomes"]] == [
        ("quick", 0, ""),
        ("slow", 0, "slow\n"),
    ]
    assert not Path(first["job"]).exists(), "nothing is left behind"


def test_each_call_renews_the_lease(tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    lease.touch()
    os.utime(lease, (0, 0))
    job = call(launches=[spec("a", "true")], wait=0.01, lease=str(lease))["job"]
    assert lease.stat().st_mtime > 0
    os.utime(lease, (0, 0))
    call(job=job, wait=60.0, lease=str(lease))
    assert lease.stat().st_mtime > 0
    assert call(launches=[spec("a", "true")], lease=str(tmp_path / "gone"))["finished"]
    assert not (tmp_path / "gone").exists()


def test_a_quick_round_needs_one_call() -> None:
    done = call(launches=[spec("a", "echo hello")], wait=60.0)
    assert done["finished"]
    assert done["outcomes"][0]["stdout"] == "hello\n"


def test_the_round_outlives_its_caller_and_its_time_limit_holds(tmp_path: Path) -> None:
    first = call(launches=[spec("hang", "sleep 600", timeout=1.0)], wait=0.01)
    job = Path(first["job"])
    parent = Path(f"/proc/{(job / 'pid').read_text()}/status").read_text().partition("PPid:")[2].split()[0]
    assert int(parent) != os.getpid(), "not our child: it does not end with us"
    last = call(job=str(job), wait=60.0)
    assert last["outcomes"][0]["timed_out"]


def test_a_round_whose_process_is_killed_is_finished_without_outcomes() -> None:
    first = call(launches=[spec("hang", "sleep 30", timeout=30.0)], wait=0.01)
    os.kill(int((Path(first["job"]) / "pid").read_text()), signal.SIGKILL)
    assert call(job=first["job"], wait=60.0) == {"finished": True, "job": first["job"], "ended": [], "outcomes": []}


@pytest.mark.parametrize("job", ["/etc", "/tmp/other"])
def test_a_folder_that_is_no_round_is_left_alone(job: str) -> None:
    assert "expected what an earlier call returned" in call(job=job)["msg"]
