# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host has room for another driver. Pure. Private.

A disk that fills up in the middle leaves packages half-configured, or a kernel with half an initramfs, which does not
boot.
"""

from __future__ import annotations

# MiB: packages that are downloaded and installed, and with modules their build, for which dkms wants several hundred.
USER_SPACE = {"/usr": 512, "/var": 512}
MODULES = {"/usr": 1024, "/var": 1536}


def room_problems(room: list[str], readonly: list[str], initrd_mib: int, modules: bool) -> list[str]:
    """``room``: lines "FOLDER MOUNT FREE-MIB"; ``initrd_mib``: the largest initramfs, written anew beside itself."""
    need = dict(MODULES if modules else USER_SPACE)
    if modules and initrd_mib:
        need["/boot"] = initrd_mib * 3 // 2
    problems = [f"{folder} cannot be written: its file system is read-only" for folder in readonly]
    wanted: dict[str, int] = {}
    free: dict[str, int] = {}
    for line in room:
        folder, mount, mib = line.split()
        wanted[mount] = wanted.get(mount, 0) + need.get(folder, 0)
        free[mount] = int(mib)
    problems += [
        f"{free[mount]} MiB free on {mount}, {mib} wanted for another driver"
        for mount, mib in wanted.items()
        if free[mount] < mib
    ]
    return problems
