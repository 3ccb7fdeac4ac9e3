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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _python_lock
from ansible_collections.gpuops.cluster.plugins.module_utils._python_relocate import make_relocatable

STAMP = ".gpuops.json"
ASK_VERSION = "import platform; print(platform.python_version())"
Run = Callable[..., tuple[int, str, str]]


class EnvironmentFailed(Exception):
    """A step of the build failed; the message carries the tool's own last words."""


@dataclass
class Source:
    """Where packages come from and what installs them: `pip` or `uv`, which take the same places by other names."""

    installer: str = "pip"
    index_url: str = ""
    find_links: list[str] = field(default_factory=list)
    no_index: bool = False

    def options(self, installer: str) -> list[str]:
        options = [f"--find-links={place}" for place in self.find_links]
        if self.no_index:
            return ["--no-index", *options]
        if self.index_url:
            options.append(f"{'--default-index' if installer == 'uv' else '--index-url'}={self.index_url}")
        return options


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
        return bool(stamp_of(self.target).get("lock_sha256") == self.digest)

    def previous(self) -> str | None:
        """The environment in use now, None at the first time."""
        return os.readlink(self.link) if self.link.is_symlink() else None

    def is_current(self) -> bool:
        return self.previous() == self.target.name

    def superseded(self) -> list[Path]:
        """Others of this name, but for the newest `keep` of them and those that a process uses."""
        others = [p for p in self.root.glob(f"{self.name}-" + "[0-9a-f]" * 12) if p.is_dir() and p != self.target]
        others.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        old = others[self.keep :]
        return [path for path in old if not used(path)] if old else []

    @contextmanager
    def _begun(self) -> Iterator[Path]:
        """A folder for temporary files, where the environments are; what fails in it leaves nothing behind."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o755)
        free = shutil.disk_usage(self.root).free
        work = self.root / f".{self.target.name}.work"
        for rest in (work, self.target):
            if rest.exists():
                shutil.rmtree(rest)
        work.mkdir(mode=0o700)
        try:
            yield work
        except (EnvironmentFailed, OSError) as error:
            shutil.rmtree(self.target, ignore_errors=True)
            if "No space left on device" in str(error):
                raise EnvironmentFailed(f"{error}\n{self.root} had {free // 1_000_000} MB free") from error
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def build(self, python: str, source: Source, run: Run) -> None:
        """Make the environment, or remove what was begun and raise EnvironmentFailed."""
        with self._begun() as work:
            # Downloads go where there is room for the environment: /tmp is often small, or memory.
            temporary = {"TMPDIR": str(work)}
            self._build(python, source, work, lambda command: run(command, environ_update=temporary))

    def _build(self, python: str, source: Source, work: Path, run: Run) -> None:
        step(run, [python, "-m", "venv", str(self.target)])
        made = str(self.target / "bin/python")
        pip = [made, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        whole = self.target / "requirements.lock"
        whole.write_text(self.lock)
        # A distribution's pip may be too old to know the platform tags of the wheels, so a locked pip comes first.
        # So does the locked uv, where it is to install the rest.
        for tool in ("pip", "uv") if source.installer == "uv" else ("pip",):
            first = _python_lock.only(self.lock, tool)
            if first:
                (self.target / f"{tool}.lock").write_text(first)
                options = [*source.options("pip"), "-r", str(self.target / f"{tool}.lock")]
                step(run, [*pip, "install", "--require-hashes", *options])
        if source.installer == "uv":
            # Its cache is on the same file system, so that files are linked from there rather than copied.
            uv = [str(self.target / "bin/uv"), "pip", "install", "--python", made, "--compile-bytecode"]
            install = [*uv, "--no-progress", f"--cache-dir={work / 'uv'}", "--link-mode=hardlink"]
        else:
            install = [*pip, "install"]
        step(run, [*install, "--require-hashes", *source.options(source.installer), "-r", str(whole)])
        step(run, [*pip, "check"])
        make_relocatable(self.target)
        self._write_stamp(step(run, [made, "-c", ASK_VERSION]).strip())

    def _write_stamp(self, python: str) -> None:
        stamp = {"name": self.name, "lock_sha256": self.digest, "python": python}
        (self.target / STAMP).write_text(json.dumps(stamp) + "\n")

    def unpack(self, archive: str, run: Run) -> None:
        """Take the environment from an archive that another host made of it, or leave nothing and raise."""
        with self._begun() as work:
            options = ["--blocking-factor=2048", "--no-same-owner"]
            step(run, ["tar", "--extract", *options, f"--file={archive}", f"--directory={work}"])
            inside = work / self.target.name
            if stamp_of(inside).get("lock_sha256") != self.digest:
                raise EnvironmentFailed(f"{archive} does not hold {self.target.name} whole")
            runs_here(inside, run)
            inside.rename(self.target)

    def switch(self) -> None:
        """Point the link at this environment in one step, so that no moment is without one."""
        new = self.root / f".{self.name}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(self.target.name)
        new.replace(self.link)


def used(home: Path, proc: Path = Path("/proc")) -> bool:
    """Whether a process of this host was started by this path, or has loaded a library from there."""
    inside = f"{home}/".encode()
    for process in proc.glob("[0-9]*"):
        for name in ("cmdline", "maps"):
            try:
                if inside in (process / name).read_bytes():
                    return True
            except OSError:
                continue  # it has ended
    return False


def stamp_of(home: Path) -> dict[str, Any]:
    """What was written when the environment was complete; empty where it is not."""
    try:
        found = json.loads((home / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def runs_here(home: Path, run: Run) -> None:
    """Raise where this host's interpreter is not the one that the environment was made with, on another host."""
    made = str(stamp_of(home).get("python", ""))
    try:
        code, out, _err = run([str(home / "bin/python"), "-c", ASK_VERSION], handle_exceptions=False)
    except OSError:
        code, out = 1, ""
    here = out.strip() if code == 0 else ""
    # Releases of one minor version are exchangeable, and nodes are not updated all at once.
    if not here or (made and made.split(".")[:2] != here.split(".")[:2]):
        link = os.readlink(home / "bin/python") if (home / "bin/python").is_symlink() else "python"
        said = f"is {here}" if here else "is missing or does not run"
        raise EnvironmentFailed(f"{home.name} was made with Python {made}; here its {link} {said}")


def step(run: Run, command: list[str]) -> str:
    """Run one command; what it says last is the most useful part of a failure."""
    code, out, err = run(command)
    if code != 0:
        words = " ".join(command[:4])
        last = "\n".join((out + err).strip().splitlines()[-8:])
        raise EnvironmentFailed(f"{words} … failed ({code}):\n{last}")
    return out
