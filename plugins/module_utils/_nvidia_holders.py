# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a GPU open: services that may be stopped while its driver is changed, and others that may not."""

from __future__ import annotations

# Daemons of NVIDIA's, by the name of their program (the kernel cuts it to 15 characters): the role stops them before it
# changes a driver, and starts them again.
SERVICES = {
    "nvidia-persiste": "nvidia-persistenced",
    "nv-hostengine": "nvidia-dcgm",
    "nv-fabricmanage": "nvidia-fabricmanager",
    "nvidia-imex": "nvidia-imex",
    "dcgm-exporter": "dcgm-exporter",
}


def holders(lines: list[str], services: list[str]) -> tuple[list[str], list[str]]:
    """Services to stop, and other programs that have a GPU open, from lines "UNIT PROGRAM" (UNIT is - for none)."""
    stop: set[str] = set()
    users: set[str] = set()
    wanted = {name.partition(".service")[0] for name in services}
    for line in lines:
        unit, _unused, program = line.partition(" ")
        service = SERVICES.get(program) or unit.partition(".service")[0]
        if program in SERVICES or service in wanted:
            stop.add(service)
        else:
            users.add(program if unit == "-" else f"{program} ({unit})")
    return sorted(stop), sorted(users)
