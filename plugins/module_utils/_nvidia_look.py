# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver reads from a host. Changes nothing but apt's lists where there are none. Private."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Callable
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _command, _gpu_settings, _package_index

Run = Callable[..., tuple[int, str, str]]
# Units and where they are, if they are; the role makes the last one itself.
UNITS = {
    "nvidia-persistenced": "/lib/systemd/system",
    "nvidia-fabricmanager": "/lib/systemd/system",
    "gpuops-gpu-settings": "/etc/systemd/system",
}
SMI_TIMEOUT = 300.0

# One "word value" a line; the arguments are packages to ask dpkg for.
PROBE = r"""
for attribute in vendor device class; do
  grep -H . /sys/bus/pci/devices/*/"$attribute" 2>/dev/null
done | sed 's/^/pci /'
dpkg-query --show --showformat='dpkg ${db:Status-Abbrev}|${Package}|${Version}\n' "$@" 2>/dev/null
if [ -e /usr/bin/nvidia-uninstall ] || [ -e /usr/bin/nvidia-installer ]; then
  echo 'runfile found'
fi
for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
  [ -r "$variable" ] && [ "$(od -An -t u1 -j 4 -N 1 "$variable" | tr -d ' ')" = 1 ] && echo 'secure_boot on'
done
if [ -e /var/lib/dkms/mok.pub ] && command -v mokutil > /dev/null; then
  mokutil --test-key /var/lib/dkms/mok.pub 2>/dev/null | grep -q 'already enrolled' && echo 'key_enrolled yes'
fi
if command -v mokutil > /dev/null; then
  mokutil --list-enrolled 2>/dev/null | sed -n 's/^.*SHA1 Fingerprint: */enrolled /p'
fi
for image in /boot/vmlinuz-*; do
  [ -e "$image" ] && echo "kernel ${image#/boot/vmlinuz-}"
done
for folder in /usr /var /boot; do
  df --block-size=1M --output=target,avail "$folder" 2>/dev/null | sed -n "2s|^|room $folder |p"
  [ ! -e "$folder" ] || [ -w "$folder" ] || echo "readonly $folder"
done
du --block-size=1M /boot/initrd.img-* 2>/dev/null | cut -f 1 | sort -n | sed -n '$s/^/initrd /p'
ls /var/lib/dpkg/updates/[0-9]* > /dev/null 2>&1 && echo 'interrupted dpkg'
if [ -e /var/lib/gpuops/nvidia-driver/Packages ]; then
  echo "local_repository $(sha256sum < /var/lib/gpuops/nvidia-driver/SHA256SUMS | cut -d ' ' -f 1)"
fi
start=$(date -d "$(LC_ALL=C ps -o lstart= -p 1)" +%s) &&
  [ -n "$(find /var/lib/dpkg/info -name '*nvidia*.list' -newermt "@$start" -print -quit)" ] &&
  echo 'changed since_start'
[ -e /etc/gpuops/gpu_settings.json ] && echo 'gpu_settings here'
[ -e /sys/module/nouveau ] && echo 'nouveau loaded'
if [ -e /proc/driver/nvidia/version ]; then
  find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*' 2>/dev/null | cut -d / -f 3 | sort -u | while read -r process; do
    unit=$(grep -o '[^/]*\.service' "/proc/$process/cgroup" 2>/dev/null | head -n 1)
    echo "holder ${unit:--} $(cat "/proc/$process/comm" 2>/dev/null)"
  done
fi
exit 0
"""


def fetch_lists(run_command: Run, places: _package_index.Places) -> str:
    """Package lists where there are none, without which nothing can be said. Returns apt's words if it could not."""
    if glob.glob(f"{glob.escape(places.lists)}/*_Packages*"):
        return ""
    said = _package_index.update(run_command, lock_timeout=300)
    return f"package lists have to be fetched, since there are none, and apt-get update says: {said}" if said else ""


def probe(run_command: Run, packages: list[str]) -> list[str]:
    _rc, said, _err = run_command(["/bin/sh", "-c", PROBE, "probe", *packages], expand_user_and_vars=False)
    return said.splitlines()


def madison(run_command: Run, packages: list[str]) -> tuple[list[str], str]:
    """The versions that apt knows, and its words if it does not answer."""
    rc, said, err = run_command(["apt-cache", "madison", *packages], environ_update={"LC_ALL": "C"})
    return said.splitlines(), f"apt-cache madison says: {err.strip()}" if rc else ""


def file_state(path: str) -> str:
    """``0644 CHECKSUM`` of a file (SHA256), ``0755 directory``, empty where there is nothing."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return f"{stat.S_IMODE(mode):04o} directory"
        with open(path, "rb") as file:
            return f"{stat.S_IMODE(mode):04o} {hashlib.sha256(file.read()).hexdigest()}"
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or "unreadable"


def units(run_command: Run) -> dict[str, dict[str, bool]]:
    """Those of UNITS that are there: whether each is enabled, and whether it runs."""
    names = [f"{name}.service" for name in UNITS]
    _rc, said, _err = run_command(["systemctl", "show", "--property=Id,LoadState,UnitFileState,ActiveState", *names])
    rows = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in said.split("\n\n")]
    return {
        name: {
            "enabled": row.get("UnitFileState") in ("enabled", "enabled-runtime", "static", "generated"),
            "active": row.get("ActiveState") in ("active", "activating"),
        }
        for name, row in zip(UNITS, rows)
        if os.path.exists(f"{UNITS[name]}/{name}.service")
    }


def nvidia_smi(words: list[str]) -> tuple[int, str]:
    answer = _command.run(["nvidia-smi", *words], SMI_TIMEOUT)
    return (1 if answer.rc is None else answer.rc), answer.failure or answer.text()


def gpu_settings(wanted: dict[str, Any]) -> dict[str, list[str]]:
    """What the GPUs have against what is wanted; sets nothing."""
    try:
        return _gpu_settings.settle(wanted, nvidia_smi, check=True)
    except _gpu_settings.Failed as error:
        return {"changed": [], "waiting": [], "wrong": [str(error)]}
