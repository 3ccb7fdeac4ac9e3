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
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt", "sudo", "iproute2", "iputils-ping",
    "ca-certificates", "procps", "kmod", "curl", "pciutils",
)  # fmt: skip

# Every node makes host keys of its own at boot.
HOST_KEYS = """\
[Service]
ExecStartPre=
ExecStartPre=/usr/bin/ssh-keygen -A
ExecStartPre=/usr/sbin/sshd -t
"""


def recipe(suite: str, output: Path) -> list[str]:
    """mmdebstrap's command line. No mirror argument: its default brings the updates and security suites too."""
    drop_in = HOST_KEYS.replace("\n", "\\n")
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += ["--components=main,contrib,non-free,non-free-firmware", '--aptopt=APT::Install-Recommends "false"']
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    command += [
        f'--customize-hook=mkdir -p "$1"/etc/systemd/system/ssh.service.d; printf "{drop_in}" > "$1"/etc/systemd/system/ssh.service.d/hostkeys.conf',
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf; : > "$1"/etc/machine-id',
        '--customize-hook=rm -rf "$1"/var/lib/apt/lists/*',
    ]
    return [*command, suite, str(output)]


def tag(suite: str) -> str:
    """The image's name carries a hash of its recipe: a changed recipe is another image."""
    digest = hashlib.sha256(" ".join(recipe(suite, Path("x"))).encode()).hexdigest()[:12]
    return f"localhost/gpuops-lab-{suite}:{digest}"


def fresh(archive: Path, now: float) -> bool:
    return archive.exists() and now - archive.stat().st_mtime < MAX_AGE


def ensure(podman: Podman, suite: str) -> str:
    """Build and import the image where it is missing, changed or old; returns its tag."""
    name = tag(suite)
    archive = podman.cache / "images" / f"{suite}-{name.rpartition(':')[2]}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not fresh(archive, time.time()):
        for old in archive.parent.glob(f"{suite}-*"):
            old.unlink()
        unfinished = archive.with_suffix(".new.tar")
        done = subprocess.run(
            recipe(suite, unfinished), check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise LabError(f"mmdebstrap {suite} failed:\n{done.stdout[-3000:]}")
        unfinished.replace(archive)
        podman.call("rmi", "-f", name, check=False)
    if not podman.image_exists(name):
        changes = ["--change", 'CMD ["/sbin/init"]', "--change", "STOPSIGNAL SIGRTMIN+3"]
        podman.call("import", *changes, str(archive), name)
    return name
