# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual environments built beside each other and switched by a link. Private to this collection.

Layout below the root: NAME-<first 12 digits of the lock's hash>/ for each lock, and the link NAME to the one in use. An
environment is complete once its stamp is there, which is written last; jobs that run in an old one keep it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ansible_collections.gpuops.cluster.plugins.module_utils import _python_lock

STAMP = ".gpuops.json"
Run = Callable[[list[str]], tuple[int, str, str]]


class EnvironmentFailed(Exception):
    """A step of the build failed; the message carries the tool's own last words."""


class Environment:
    """One named environment for one lock."""

    def __init__(self, root: Path, name: str, lock: str, keep: int) -> None:
        self.lock = lock
        self.digest = _python_lock.digest(lock)
        self.root = root
        self.name = name
        self.keep = keep
        self.target = root / f"{name}-{self.digest[:12]}"
        self.link = root / name

    def is_complete(self) -> bool:
        try:
            stamp = json.loads((self.target / STAMP).read_text())
        except (OSError, ValueError):
            return False
        return bool(stamp.get("lock_sha256") == self.digest)

    def previous(self) -> str | None:
        """The environment in use now, None at the first time."""
        return os.readlink(self.link) if self.link.is_symlink() else None

    def is_current(self) -> bool:
        return self.previous() == self.target.name

    def superseded(self) -> list[Path]:
        """Environments of this name that are neither wanted nor among the newest `keep` others."""
        others = [p for p in self.root.glob(f"{self.name}-" + "[0-9a-f]" * 12) if p.is_dir() and p != self.target]
        others.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        return others[self.keep :]

    def build(self, python: str, pip_options: list[str], run: Run) -> None:
        """Make the environment, or remove what was begun and raise EnvironmentFailed."""
        if self.target.exists():
            shutil.rmtree(self.target)
        self.root.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            self._build(python, pip_options, run)
        except EnvironmentFailed:
            shutil.rmtree(self.target, ignore_errors=True)
            raise

    def _build(self, python: str, pip_options: list[str], run: Run) -> None:
        step(run, [python, "-m", "venv", str(self.target)])
        pip = [str(self.target / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        whole = self.target / "requirements.lock"
        whole.write_text(self.lock)
        # A distribution's pip may be too old to know the platform tags of the wheels, so a locked pip comes first.
        first = _python_lock.only(self.lock, "pip")
        if first:
            (self.target / "pip.lock").write_text(first)
            step(run, [*pip, "install", "--require-hashes", *pip_options, "-r", str(self.target / "pip.lock")])
        step(run, [*pip, "install", "--require-hashes", *pip_options, "-r", str(whole)])
        step(run, [*pip, "check"])
        (self.target / STAMP).write_text(json.dumps({"name": self.name, "lock_sha256": self.digest}) + "\n")

    def switch(self) -> None:
        """Point the link at this environment in one step, so that no moment is without one."""
        new = self.root / f".{self.name}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(self.target.name)
        new.replace(self.link)


def step(run: Run, command: list[str]) -> None:
    """Run one command; what it says last is the most useful part of a failure."""
    code, out, err = run(command)
    if code != 0:
        words = " ".join(command[:4])
        last = "\n".join((out + err).strip().splitlines()[-8:])
        raise EnvironmentFailed(f"{words} … failed ({code}):\n{last}")
