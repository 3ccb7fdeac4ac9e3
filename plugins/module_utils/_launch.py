# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One launch of a parallel program, to its end or its time limit. Private to this collection.

Unlike a query of a tool (see _command), it may run for minutes, is asked to end before it is killed, and may have left
processes on other hosts, for which a command to clean up is given.
"""

from __future__ import annotations

import os
import signal
import subprocess
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


def launch(spec: dict[str, Any], keep: int) -> dict[str, Any]:
    """Run one command to its end or its time limit."""
    started = time.monotonic()
    outcome: dict[str, Any] = {"name": spec["name"], "rc": None, "stdout": "", "stderr": "", "timed_out": False}
    environment = {**os.environ, "LC_ALL": "C", **{key: str(value) for key, value in spec["environment"].items()}}
    try:
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
    try:
        out, err = process.communicate(timeout=spec["timeout"])
    except subprocess.TimeoutExpired:
        outcome["timed_out"] = True
        _stop(process)
        if spec["cleanup"]:
            subprocess.run(spec["cleanup"], check=False, capture_output=True, timeout=60, env=environment)
        try:
            out, err = process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired as late:  # somebody outside the group still holds the pipes
            out, err = late.stdout or b"", late.stderr or b""
    return {
        **outcome,
        "rc": process.returncode,
        "stdout": out.decode(errors="replace")[-keep:],
        "stderr": err.decode(errors="replace")[-keep:],
        "seconds": round(time.monotonic() - started, 3),
    }


def output(command: list[str], cwd: Path) -> tuple[int, str]:
    """Run a build step to its end; its exit code and all it said. OSError where it cannot be started."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
    return done.returncode, done.stdout
