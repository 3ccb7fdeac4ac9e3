# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of tools that may hang."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ansible_collections.gpuops.cluster.plugins.module_utils import _command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def shell(script: str, timeout: float = 10) -> _command.Answer:
    return _command.run(["/bin/sh", "-c", script], timeout)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
            return stream.read().rsplit(")", maxsplit=1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_both_streams_and_the_exit_code() -> None:
    answer = shell("echo out; echo err >&2; exit 7")
    assert (answer.rc, answer.stdout, answer.stderr, answer.failure) == (7, b"out\n", b"err\n", "")
    assert answer.text() == "out\n\nerr\n"


def test_a_large_answer_does_not_block() -> None:
    answer = shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
    assert len(answer.stdout) == len(answer.stderr) == 3000000 and answer.rc == 0


def test_the_whole_group_is_killed_when_time_is_up(tmp_path: Path) -> None:
    started = time.monotonic()
    answer = shell(f"echo begun; sleep 60 & echo $! > {tmp_path}/child; trap '' TERM; sleep 60", timeout=0.5)
    assert time.monotonic() - started < 3
    assert answer.timed_out and answer.rc is None and answer.stdout == b"begun\n"
    assert "within 0.5 s" in answer.failure
    child = int((tmp_path / "child").read_text())
    while alive(child):  # the kernel needs a moment on a busy machine
        assert time.monotonic() - started < 10
        time.sleep(0.01)


def test_a_child_that_keeps_the_pipe_is_not_waited_for() -> None:
    started = time.monotonic()
    answer = shell("echo done; sleep 60 &")
    assert time.monotonic() - started < 3
    assert answer.rc == 0 and answer.stdout == b"done\n" and not answer.timed_out


def test_a_tool_that_closes_its_output_and_hangs() -> None:
    started = time.monotonic()
    answer = shell("exec >&- 2>&-; sleep 60", timeout=0.5)
    assert time.monotonic() - started < 3
    assert answer.timed_out and answer.rc is None


def test_endless_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_command, "OUTPUT_LIMIT", 100_000)
    answer = shell("yes")
    assert len(answer.stdout) == 100_000 and answer.rc is None and "more than 100000 bytes" in answer.failure


def test_a_tool_that_cannot_start(tmp_path: Path) -> None:
    assert "No such file" in _command.run([str(tmp_path / "none")], 5).failure
    (tmp_path / "text").write_text("no program\n")
    assert "Permission denied" in _command.run([str(tmp_path / "text")], 5).failure


def test_a_signal_is_a_negative_code() -> None:
    assert shell("kill -SEGV $$").rc == -11
