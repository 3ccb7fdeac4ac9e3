# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base image: a minimal Debian with systemd and sshd, made by mmdebstrap. Roles install everything else."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

from .paths import LabError
from .podman import Podman

SUITES = ("bookworm", "trixie")
MAX_AGE = 7 * 86400
# What every installed Debian has (systemd, sshd, Python for Ansible, udev, ping …) and pciutils; roles bring the rest.
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "python3", "python3-apt", "sudo", "iproute2",
    "iputils-ping", "netbase", "ca-certificates", "procps", "kmod", "curl", "pciutils",
)  # fmt: skip

# Every host makes its own host keys at boot. No name, no machine id, no package lists stay in the image.
HOST_KEYS = r"[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\nExecStartPre=/usr/sbin/sshd -t\n"
HOOKS = (
    f'd="$1"/etc/systemd/system/ssh.service.d; mkdir -p "$d"; printf "{HOST_KEYS}" > "$d"/hostkeys.conf',
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf; : > "$1"/etc/machine-id',
    'rm -rf "$1"/var/lib/apt/lists/*',
)


def recipe(suite: str, output: Path) -> list[str]:
    """mmdebstrap's command line. No mirror argument: its default brings the updates and security suites too."""
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += ["--components=main,contrib,non-free,non-free-firmware", '--aptopt=APT::Install-Recommends "false"']
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    command += [f"--customize-hook={hook}" for hook in HOOKS]
    return [*command, suite, str(output)]


def tag(suite: str) -> str:
    """The image's name carries a hash of its recipe: a changed recipe is another image."""
    digest = hashlib.sha256(" ".join(recipe(suite, Path("x"))).encode()).hexdigest()[:12]
    return f"localhost/gpuops-lab-{suite}:{digest}"


def fresh(archive: Path, now: float) -> bool:
    return archive.exists() and now - archive.stat().st_mtime < MAX_AGE


def ensure(podman: Podman, suite: str) -> str:
    """Build and import the image where it is missing, changed or old; returns its tag. Labs that are up keep theirs."""
    name = tag(suite)
    archive = podman.cache / "images" / f"{suite}-{name.rpartition(':')[2]}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    built = not fresh(archive, time.time())
    if built:
        unfinished = archive.parent / f"new-{archive.name}"
        done = subprocess.run(
            recipe(suite, unfinished), check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise LabError(f"mmdebstrap {suite} failed:\n{done.stdout[-3000:]}")
        for old in archive.parent.glob(f"{suite}-*"):
            old.unlink()
        unfinished.replace(archive)
    if built or not podman.image_exists(name):
        changes = ["--change", 'CMD ["/sbin/init"]', "--change", "STOPSIGNAL SIGRTMIN+3"]
        podman.call("import", *changes, str(archive), name)
        prune(podman, name)
    return name


def prune(podman: Podman, keep: str) -> None:
    """Remove images of other recipes; podman keeps those that a lab still uses."""
    repository = keep.rpartition(":")[0]
    listed = podman.call("images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference={repository}").stdout
    for old in set(listed.split()) - {keep}:
        podman.call("rmi", old, check=False)
    podman.call("image", "prune", "-f", check=False)
