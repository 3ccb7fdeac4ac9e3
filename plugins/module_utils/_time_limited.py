# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs pieces of work side by side, each in a process of its own with a time limit.

A sick driver or a dead file server leaves whoever asks it in uninterruptible sleep, where neither a time limit inside
the process nor SIGKILL helps. So a child does the asking; it can be left behind, and the parent tells which one it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

LIMIT = 1024 * 1024  # bytes of one answer
GRACE_AFTER_KILL = 0.5
_DESCRIPTORS = 1024

Work = Callable[[], Any]
Process = tuple[int, int]  # its number, and when it started: numbers are used again


@dataclass
class Outcome:
    """The value, or why there is none. ``left`` is the process that could not be ended."""

    value: Any = None
    failure: str = ""
    timed_out: bool = False
    left: Optional[Process] = None


@dataclass
class _Child:
    pid: int
    pipe: int
    deadline: float
    limit: float
    data: bytearray = field(default_factory=bytearray)


def started_at(pid: int) -> int:
    """Clock ticks since boot at which a process started; 0 when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as handle:
            return int(handle.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def alive(process: Process) -> bool:
    pid, start = process
    return started_at(pid) == start != 0


def _work(pipe: int, work: Work) -> None:
    """The child's whole life. It closes the parent's locks and pipes: left behind, it must not hold them."""
    code = 0
    try:
        os.setpgid(0, 0)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, _DESCRIPTORS)
        try:
            answer = {"value": work()}
        except Exception as error:
            answer = {"failure": f"{type(error).__name__}: {error}"}
        with os.fdopen(pipe, "wb") as stream:
            stream.write(json.dumps(answer).encode())
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def _start(work: Work, limit: float) -> _Child:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work(write_end, work)
    os.close(write_end)
    os.set_blocking(read_end, False)
    return _Child(pid, read_end, time.monotonic() + limit, limit)


def _ended(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.01)
                continue
        return True


def _finish(child: _Child, complete: bool) -> Outcome:
    os.close(child.pipe)
    left = None
    if not complete:
        start = started_at(child.pid)
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(child.pid, signal.SIGKILL)
        left = None if _ended(child.pid, GRACE_AFTER_KILL) else (child.pid, start)
        return Outcome(failure=f"no answer within {child.limit:g} s", timed_out=True, left=left)
    _ended(child.pid, GRACE_AFTER_KILL)
    try:
        answer = json.loads(child.data.decode())
    except ValueError:
        return Outcome(failure="it ended without an answer")
    return Outcome(value=answer.get("value"), failure=answer.get("failure", ""))


def together(works: Mapping[str, tuple[Work, float]]) -> dict[str, Outcome]:
    """Outcomes by name. Values have to be what JSON can carry. Takes no longer than the longest limit."""
    outcomes: dict[str, Outcome] = {}
    with selectors.DefaultSelector() as selector:
        running: dict[str, _Child] = {}
        for name, (work, limit) in works.items():
            try:
                running[name] = child = _start(work, limit)
            except OSError as error:
                outcomes[name] = Outcome(failure=f"it could not be started: {error}")
                continue
            selector.register(child.pipe, selectors.EVENT_READ, name)
        while running:
            nearest = min(child.deadline for child in running.values())
            for key, _events in selector.select(max(0.0, nearest - time.monotonic())):
                child = running[key.data]
                chunk = os.read(child.pipe, 65536)
                child.data += chunk
                if not chunk or len(child.data) > LIMIT:
                    selector.unregister(child.pipe)
                    outcomes[key.data] = _finish(running.pop(key.data), complete=not chunk)
            for name in [name for name, child in running.items() if time.monotonic() >= child.deadline]:
                selector.unregister(running[name].pipe)
                outcomes[name] = _finish(running.pop(name), complete=False)
    return {name: outcomes[name] for name in works}
