# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab needs from the machine it runs on: root, packages, two kernel settings."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from . import firewall
from .paths import LabError

# A file that must exist (any one of the alternatives) and the Debian package that brings it.
NEEDED: dict[str, tuple[str, ...]] = {
    "podman": ("podman",),
    "crun": ("crun",),
    "netavark": ("/usr/lib/podman/netavark", "/usr/libexec/podman/netavark"),
    "aardvark-dns": ("/usr/lib/podman/aardvark-dns", "/usr/libexec/podman/aardvark-dns"),
    "mmdebstrap": ("mmdebstrap",),
    "debian-archive-keyring": ("/usr/share/keyrings/debian-archive-keyring.gpg",),
    "ca-certificates": ("/etc/ssl/certs/ca-certificates.crt",),
    "openssh-client": ("ssh-keygen",),
    "iproute2": ("ip",),
    "iptables": ("iptables",),
    "nftables": ("nft",),
    "util-linux": ("nsenter",),
    "mount": ("mount",),
}

# Raised while labs are up: every systemd takes about five inotify instances.
SETTINGS = {"fs/inotify/max_user_instances": 1024, "net/ipv4/ip_forward": 1}
# Counters and places that the kernel itself moves.
UNSTEADY = {"ns_last_pid", "pty", "drop_caches", "compact_memory", "sched_domain", "perf_event_max_sample_rate"}


def present(name: str) -> bool:
    """True when a program (or, with a slash, a file) is there."""
    return os.path.exists(name) if "/" in name else shutil.which(name) is not None


def missing(needed: dict[str, tuple[str, ...]], exists: Callable[[str], bool] = present) -> list[str]:
    """Debian packages of which no file is present."""
    return [package for package, files in needed.items() if not any(exists(name) for name in files)]


def need_root(command: Iterable[str]) -> None:
    if os.geteuid() != 0:
        raise LabError(f"the lab makes system containers and needs root; type: sudo -E ./run lab {' '.join(command)}")


def install_missing(more: dict[str, tuple[str, ...]], *, containers: bool = True) -> None:
    """Install what is missing from the distribution's packages, or say what to type."""
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    needed = {**(NEEDED if containers else {}), **more}
    packages = missing(needed)
    if not packages:
        return
    if not shutil.which("apt-get"):
        raise LabError(f"this is not a Debian or Ubuntu system; install with its package manager: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages]
    for command in (["apt-get", "-qq", "update"], install):
        done = subprocess.run(
            command, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            hint = "\nThe lab needs Debian 12, Ubuntu 24.04 or newer." if "netavark" in done.stdout else ""
            raise LabError(f"{' '.join(command)} failed:\n{done.stdout[-3000:].strip()}{hint}")
    still = missing(needed)
    if still:
        raise LabError(f"apt-get installed {' '.join(packages)}, but nothing is found of: {' '.join(still)}")


def kernel_settings(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """The settings that are one for the machine and that a privileged container can change: kernel, vm and fs."""
    found = {}
    for part in ("kernel", "vm", "fs"):
        for directory, inner, names in os.walk(root / part):
            inner[:] = [name for name in inner if name not in ("binfmt_misc", "random", "keys")]
            for name in names:
                path = Path(directory, name)
                if name not in UNSTEADY and path.stat().st_mode & 0o644 == 0o644:
                    with contextlib.suppress(OSError):
                        found[str(path.relative_to(root))] = path.read_text()
    return found


def prepare(machine: Path, *, privileged: bool) -> None:
    """Raise kernel settings that are too low. What was there before is kept for `restore`, until the next boot."""
    record = machine / "before.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    before = json.loads(record.read_text()) if record.exists() else {}
    if before.get("boot") != boot:
        before = {"boot": boot, "settings": {}, "firewall": firewall.snapshot()}
    if privileged:
        before["settings"] = {**kernel_settings(), **before["settings"]}
    for name, wanted in SETTINGS.items():
        path = Path("/proc/sys") / name
        value = path.read_text()
        if int(value) < wanted:
            before["settings"].setdefault(name, value)
            record.write_text(json.dumps(before))
            try:
                path.write_text(f"{wanted}\n")
            except OSError as error:
                raise LabError(f"{path} is {value} and cannot be set to {wanted}: {error.strerror}") from error
    record.write_text(json.dumps(before))


def restore(machine: Path) -> None:
    """Put back what `prepare` found."""
    record = machine / "before.json"
    if record.exists():
        before = json.loads(record.read_text())
        firewall.restore(before["firewall"])
        for name, value in before["settings"].items():
            path = Path("/proc/sys") / name
            with contextlib.suppress(OSError):
                if path.read_text() != str(value):
                    path.write_text(str(value))
        record.unlink()
