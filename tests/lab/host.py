# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab needs from the machine it runs on: root, packages, two kernel settings."""

from __future__ import annotations

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


def present(name: str) -> bool:
    """True when a program (or, with a slash, a file) is there."""
    return os.path.exists(name) if "/" in name else shutil.which(name) is not None


def missing(needed: dict[str, tuple[str, ...]], exists: Callable[[str], bool] = present) -> list[str]:
    """Debian packages of which no file is present."""
    return [package for package, files in needed.items() if not any(exists(name) for name in files)]


def need_root(command: Iterable[str]) -> None:
    if os.geteuid() != 0:
        raise LabError(f"the lab makes system containers and needs root; type: sudo -E ./run lab {' '.join(command)}")


def install_missing(more: dict[str, tuple[str, ...]]) -> None:
    """Install what is missing from the distribution's packages, or say what to type."""
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    needed = {**NEEDED, **more}
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
            raise LabError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    still = missing(needed)
    if still:
        raise LabError(f"apt-get installed {' '.join(packages)}, but nothing is found of: {' '.join(still)}")


def prepare(machine: Path) -> None:
    """Raise kernel settings that are too low. What was there before is kept for `restore`, until the next boot."""
    record = machine / "before.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    before = json.loads(record.read_text()) if record.exists() else {}
    if before.get("boot") != boot:
        before = {"boot": boot, "settings": {}, "firewall": firewall.snapshot()}
    for name, wanted in SETTINGS.items():
        path = Path("/proc/sys") / name
        value = int(path.read_text())
        if value < wanted:
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
            (Path("/proc/sys") / name).write_text(f"{value}\n")
        record.unlink()
