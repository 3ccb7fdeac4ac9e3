# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk of a virtual machine: Debian with its full kernel, booted by GRUB. Roles install everything else."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from pathlib import Path

from ..image import MAX_AGE, PACKAGES
from ..paths import LabError
from . import machine

# Of the kernel's builds only this one has rdma_rxe. systemd-timesyncd stays out: roles decide about the clock.
KERNEL = ("linux-image-amd64", "initramfs-tools", "zstd", "grub-pc")
SIZE_MIB = 12288

# An initial RAM disk with what the emulated machine has, instead of everything: a fifth of the size.
INITRAMFS = """\
#!/bin/sh
[ "$1" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk virtio_net ext4 crc32c_generic
"""

# A disk beside the first one holds a tar with what differs between machines. Unpacked at the first boot.
SEED_UNIT = """\
[Unit]
Description=Unpack what makes this machine one of a lab
DefaultDependencies=no
After=systemd-remount-fs.service
Before=sysinit.target systemd-networkd.service
RequiresMountsFor=/
ConditionPathExists=!/etc/gpuops-lab-seeded
ConditionPathExists=/dev/vdb
After=dev-vdb.device
Wants=dev-vdb.device

[Service]
Type=oneshot
ExecStart=/bin/tar --extract --file=/dev/vdb --directory=/ --no-same-owner --keep-directory-symlink
ExecStart=/bin/sh -c 'cat /etc/hostname >/proc/sys/kernel/hostname; touch /etc/gpuops-lab-seeded'

[Install]
WantedBy=sysinit.target
"""

# Boots in place of systemd, once, when the disk is made: only inside does GRUB find the disk that it boots from.
FINISH = """\
#!/bin/sh
mount -o remount,rw /
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
grub-install /dev/vda && update-grub && grep -q vmlinuz /boot/grub/grub.cfg && echo gpuops-lab: finished
sync
mount -o remount,ro /
echo o >/proc/sysrq-trigger
sleep 60
"""

GRUB_DEFAULTS = """\
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="quiet mitigations=off"
GRUB_CMDLINE_LINUX="console=ttyS0"
GRUB_TERMINAL=console
GRUB_DISABLE_OS_PROBER=true
"""

FSTAB = "/dev/vda1 / ext4 defaults,noatime 0 1\n"

FILES = {
    "etc/initramfs-tools/conf.d/gpuops-lab": (0o644, "MODULES=list\n"),
    "etc/initramfs-tools/hooks/gpuops-lab": (0o755, INITRAMFS),
}
LATER = {
    "etc/systemd/system/gpuops-lab-seed.service": (0o644, SEED_UNIT),
    "usr/local/lib/gpuops-lab/finish": (0o755, FINISH),
    "etc/default/grub": (0o644, GRUB_DEFAULTS),
    "etc/fstab": (0o644, FSTAB),
    # Emulation is slow; what waits 90 seconds on iron may wait longer here.
    "etc/systemd/system.conf.d/gpuops-lab.conf": (0o644, "[Manager]\nDefaultTimeoutStartSec=300s\n"),
}
HOOKS = (
    'systemctl --root="$1" --quiet enable systemd-networkd.service gpuops-lab-seed.service',
    'systemctl --root="$1" --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer',
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf; : > "$1"/etc/machine-id',
)


def recipe(suite: str, root: Path, early: Path, late: Path) -> list[str]:
    """mmdebstrap's command line. Package lists stay: a server that was just installed has them."""
    packages = ",".join((*PACKAGES, *KERNEL))
    command = ["mmdebstrap", "--variant=minbase", "--format=directory", f"--include={packages}"]
    command += ["--components=main,contrib,non-free,non-free-firmware", '--aptopt=APT::Install-Recommends "false"']
    command += ['--aptopt=Acquire::Languages "none"', "--skip=cleanup/apt/lists"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    command += [f"--essential-hook=copy-in {early}/etc /", f"--customize-hook=copy-in {late}/etc {late}/usr /"]
    command += [f"--customize-hook={hook}" for hook in HOOKS]
    return [*command, suite, str(root)]


def digest(suite: str) -> str:
    """Twelve digits that change when anything of the recipe changes."""
    parts = [*recipe(suite, Path("root"), Path("early"), Path("late")), str(FILES), str(LATER), str(SIZE_MIB)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def tag(suite: str) -> str:
    return f"vm-{suite}-{digest(suite)}"


def ensure(cache: Path, suite: str) -> Path:
    """Build the disk where it is missing, changed or old. Labs that are up keep the one they have open."""
    disk = cache / "images" / f"{tag(suite)}.raw"
    if disk.exists() and time.time() - disk.stat().st_mtime < MAX_AGE:
        return disk
    work = disk.parent / f"new-{disk.stem}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        unfinished = make(work, suite)
        for old in disk.parent.glob(f"vm-{suite}-*.raw"):
            old.unlink()
        unfinished.replace(disk)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return disk


def make(work: Path, suite: str) -> Path:
    """A bootable disk below `work`."""
    root, disk = work / "root", work / "disk.raw"
    write(work / "early", FILES)
    write(work / "late", LATER)
    call(*recipe(suite, root, work / "early", work / "late"))
    kernel, initrd = sorted(root.glob("boot/vmlinuz-*"))[-1], sorted(root.glob("boot/initrd.img-*"))[-1]
    shutil.copy(kernel, work / "vmlinuz")
    shutil.copy(initrd, work / "initrd")
    with disk.open("wb") as handle:
        handle.truncate(SIZE_MIB << 20)
    call("sfdisk", "--quiet", str(disk), stdin="start=2048, type=83, bootable\n")
    blocks = f"{(SIZE_MIB - 1) << 10}k"
    call("mkfs.ext4", "-q", "-F", "-E", f"offset={1 << 20}", "-d", str(root), str(disk), blocks)
    shutil.rmtree(root)
    machine.finish(disk, work / "vmlinuz", work / "initrd", work / "finish.log")
    return disk


def write(root: Path, files: dict[str, tuple[int, str]]) -> None:
    for name, (mode, content) in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)


def call(*words: str, stdin: str = "") -> None:
    done = subprocess.run(words, check=False, text=True, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise LabError(f"{words[0]} failed:\n{done.stdout[-3000:]}")
