# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lab keeps things, its locks, and the state file of each lab."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class LabError(Exception):
    """A failure with a message for the user: what was seen, and what to type."""


def cache_root() -> Path:
    """`$GPUOPS_CACHE`, else `gpuops` in the user's cache directory. Made on first use."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(os.environ.get("GPUOPS_CACHE") or Path(base) / "gpuops").absolute()
    root.mkdir(parents=True, exist_ok=True)
    return root


MACHINE = Path("/run/gpuops-lab")


def run_root(cache: Path) -> Path:
    """Run-time files of one cache directory: two caches on one machine do not meet."""
    return MACHINE / hashlib.sha256(str(cache).encode()).hexdigest()[:8]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; says so when it waits for another `lab.py` that has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("  waiting for another lab command on this machine", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def busy(path: Path) -> bool:
    """True while another process holds the lock."""
    try:
        with path.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@dataclasses.dataclass(frozen=True)
class Options:
    """What a lab is made of: `up` with equal options reuses a lab, other options rebuild it."""

    nodes: int = 2
    gpus: str = "h100x8"
    suite: str = "bookworm"
    privileged: bool = False
    vm: bool = False


@dataclasses.dataclass
class State:
    """One lab, as written to `labs/NAME/state.json`."""

    name: str
    options: Options
    image: str
    subnet: str
    hosts: dict[str, str]  # host name -> address
    complete: bool = False
    ports: dict[str, int] = dataclasses.field(default_factory=dict)  # of ssh, where it is not 22

    def container(self, host: str) -> str:
        return f"gpuops-{self.name}-{host}"

    def matches(self, options: Options, image: str) -> bool:
        """True when a finished lab was built from the same options and base image."""
        return self.complete and self.options == options and self.image == image


@dataclasses.dataclass(frozen=True)
class Lab:
    """The files of one lab."""

    cache: Path
    name: str

    @property
    def directory(self) -> Path:
        return self.cache / "labs" / self.name

    @property
    def lock(self) -> Path:
        return self.cache / "locks" / f"lab-{self.name}"

    @property
    def key(self) -> Path:
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    def read(self) -> State | None:
        """The state, or None where there is no lab or an unreadable one."""
        try:
            data = json.loads((self.directory / "state.json").read_text())
            data["options"] = Options(**data["options"])
            return State(**data)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def write(self, state: State) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / "state.json.new"
        temporary.write_text(json.dumps(dataclasses.asdict(state), indent=2) + "\n")
        temporary.replace(self.directory / "state.json")


def labs(cache: Path) -> list[Lab]:
    """All labs of this cache directory that have a directory, whole or not."""
    parent = cache / "labs"
    return [Lab(cache, entry.name) for entry in sorted(parent.iterdir())] if parent.is_dir() else []
