# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A round of launches that goes on without whoever started it. Private to this collection.

So the caller may ask every few seconds how far it is, and a connection that breaks in between loses nothing. Each
launch has a time limit, so a round that nobody asks about ends by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils._launch import launch

PREFIX = "gpuops-launch-"
PAUSE = 0.1  # seconds between two looks


def together(launches: list[dict[str, Any]], parallel: int, keep: int, note: Optional[Path] = None) -> list[Any]:
    """All launches, so many at a time; outcomes in the order given. Names of those that ended are added to `note`."""

    def one(spec: dict[str, Any]) -> dict[str, Any]:
        outcome = launch(spec, keep)
        if note is not None:
            with note.open("a", encoding="utf-8") as stream:
                stream.write(f"{spec['name']}\n")
        return outcome

    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(one, launches))


def start(launches: list[dict[str, Any]], parallel: int, keep: int) -> Path:
    """Start a round in the background; returns its folder."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    first = os.fork()
    if first == 0:
        _detach(folder, launches, parallel, keep)
    os.waitpid(first, 0)
    return folder


def _detach(folder: Path, launches: list[dict[str, Any]], parallel: int, keep: int) -> None:
    """In the child: a grandchild of nobody, without the pipes of the caller, runs the round. Does not return."""
    code = 1
    try:
        os.setsid()
        second = os.fork()
        if second:
            (folder / "pid").write_text(str(second), encoding="utf-8")
            os._exit(0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        outcomes = together(launches, parallel, keep, folder / "ended")
        (folder / "outcomes.new").write_text(json.dumps(outcomes), encoding="utf-8")
        (folder / "outcomes.new").replace(folder / "outcomes")
        code = 0
    finally:
        os._exit(code)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _lives(folder: Path) -> bool:
    pid = _read(folder / "pid")
    return pid.isdigit() and Path(f"/proc/{pid}").is_dir()


def look(folder: Path, seconds: float) -> dict[str, Any]:
    """How far a round is, after so many seconds at most: {finished, job, ended, outcomes}.

    The folder is removed with the outcomes that it held. A round whose process has gone is finished without outcomes.
    """
    until = time.monotonic() + seconds
    while True:
        lives = _lives(folder)  # asked first: what ended after this question has left its outcomes
        text = _read(folder / "outcomes")
        if text or not lives:
            shutil.rmtree(folder, ignore_errors=True)
            return {"finished": True, "job": str(folder), "ended": [], "outcomes": json.loads(text) if text else []}
        if time.monotonic() >= until:
            ended = _read(folder / "ended").splitlines()
            return {"finished": False, "job": str(folder), "ended": ended, "outcomes": []}
        time.sleep(PAUSE)
