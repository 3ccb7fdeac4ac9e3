# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One launch of a parallel program, to its end or its time limit. Private to this collection.

Unlike a query of a tool (see _command), it may run for minutes, is asked to end before it is killed, and may have left
processes on other hosts, for which a command to clean up is given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

GRACE = 5  # seconds between asking a launch to end and killing it


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: launchers have children that hold the pipes open."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM:
            time.sleep(0.2)  # children of a launcher that has gone get a moment of their own


def _clean_up(command: list[str], environment: dict[str, str]) -> None:
    """What could not be cleaned up shows when the next launch waits; it is no reason to lose this one's outcome."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
        subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, env=environment)


class _Reader(threading.Thread):
    """Reads a pipe to its end and keeps its head and its tail: a program that floods it must not fill the memory."""

    def __init__(self, pipe: Any, keep: int) -> None:
        super().__init__(daemon=True)
        self.pipe, self.half = pipe, max(1, keep // 2)
        self.head, self.tail, self.lost = b"", b"", 0
        self.start()

    def run(self) -> None:
        for chunk in iter(lambda: self.pipe.read1(65536), b""):
            room = self.half - len(self.head)
            self.head += chunk[:room]
            self.tail += chunk[room:]
            if len(self.tail) > 2 * self.half:
                self.lost += len(self.tail) - self.half
                self.tail = self.tail[-self.half :]

    def text(self) -> str:
        tail = self.tail[-self.half :]
        lost = self.lost + len(self.tail) - len(tail)
        gap = f"\n... {lost} bytes left out ...\n".encode() if lost else b""
        return (self.head + gap + tail).decode(errors="replace")


def launch(spec: dict[str, Any], keep: int) -> dict[str, Any]:
    """Run one command to its end or its time limit."""
    started = time.monotonic()
    outcome: dict[str, Any] = {"name": spec["name"], "rc": None, "stdout": "", "stderr": "", "timed_out": False}
    environment = {**os.environ, "LC_ALL": "C", **{key: str(value) for key, value in spec["environment"].items()}}
    try:
        # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
        process = subprocess.Popen(
            spec["command"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return {**outcome, "stderr": f"{spec['command'][0]}: {error.strerror}", "seconds": 0.0}
    readers = [_Reader(pipe, keep) for pipe in (process.stdout, process.stderr)]
    try:
        process.wait(spec["timeout"])
    except subprocess.TimeoutExpired:
        outcome["timed_out"] = True
        _stop(process)
        if spec["cleanup"]:
            _clean_up(spec["cleanup"], environment)
    for reader in readers:
        reader.join(GRACE)  # somebody outside the group may still hold the pipes
    if any(reader.is_alive() for reader in readers):
        _stop(process)
    return {
        **outcome,
        "rc": process.returncode,
        "stdout": readers[0].text(),
        "stderr": readers[1].text(),
        "seconds": round(time.monotonic() - started, 3),
    }


def output(command: list[str], cwd: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a build step to its end; its exit code and all it said. OSError where it cannot be started."""
    variables = {**os.environ, **environment}
    # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
    done = subprocess.run(
        command, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True
    )
    return done.returncode, done.stdout
