# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches that end, crash, hang, leave children behind or cannot start: each is a result."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _launch as module


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.5)


def launch(script: str, timeout: float = 20, **given: Any) -> dict[str, Any]:
    spec = {
        "name": "one",
        "command": ["sh", "-c", script],
        "environment": {},
        "cleanup": [],
        "timeout": timeout,
        **given,
    }
    return module.launch(spec, 1000)


def test_output_code_and_variables() -> None:
    outcome = launch('echo "$NCCL_ALGO"; echo trouble >&2; exit 3', environment={"NCCL_ALGO": "Ring"})
    assert (outcome["rc"], outcome["stdout"], outcome["stderr"]) == (3, "Ring\n", "trouble\n")
    assert not outcome["timed_out"]


@pytest.mark.parametrize("script", ["sleep 60", "trap '' TERM; sleep 60", "sleep 60 & sleep 60"])
def test_hang_is_stopped_with_its_children(script: str, tmp_path: Path) -> None:
    began = time.monotonic()
    outcome = launch(f"echo begun; {script}", timeout=0.5, cleanup=["touch", str(tmp_path / "cleaned")])
    assert outcome["timed_out"]
    assert outcome["stdout"] == "begun\n"
    assert time.monotonic() - began < 10
    assert (tmp_path / "cleaned").exists()


def test_missing_program_is_a_result() -> None:
    outcome = launch("", command=["/no/such/srun"])
    assert outcome["rc"] is None
    assert "No such file" in outcome["stderr"]


def test_long_output_keeps_its_head_and_its_end() -> None:
    outcome = launch("seq 10000")
    assert outcome["stdout"].startswith("1\n2\n"), "the head lists the ranks"
    assert outcome["stdout"].endswith("10000\n")
    assert "bytes left out" in outcome["stdout"]
    assert len(outcome["stdout"]) < 1100


def test_flood_does_not_fill_the_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = launch("head -c 300M /dev/zero | tr '\\0' x; echo the end")
    assert outcome["stdout"].endswith("the end\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024, "KiB"


def test_child_that_holds_the_pipe_is_no_hang() -> None:
    began = time.monotonic()
    outcome = launch("sleep 600 & echo done", timeout=60)
    assert (outcome["timed_out"], outcome["rc"], outcome["stdout"]) == (False, 0, "done\n")
    assert time.monotonic() - began < 30


def test_cleanup_that_fails_costs_nothing(tmp_path: Path) -> None:
    outcome = launch("echo begun; sleep 60", timeout=0.5, cleanup=[str(tmp_path / "missing")])
    assert (outcome["timed_out"], outcome["stdout"]) == (True, "begun\n")
