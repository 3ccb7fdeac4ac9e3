# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads ``nvidia-smi -L``, the only place that tells the profile and UUID of a MIG device."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GPU = re.compile(r"\s*GPU ([0-9]{1,4}): ")
_MIG = re.compile(r"\s*MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class MigName:
    profile: str
    uuid: str


def parse_list(text: str) -> dict[int, list[MigName]]:
    """MIG devices by GPU index, in the order in which the report lists them too."""
    found: dict[int, list[MigName]] = {}
    gpu: int | None = None
    for line in text.splitlines():
        match = _GPU.match(line)
        if match:
            gpu = int(match.group(1))
            found[gpu] = []
            continue
        match = _MIG.match(line)
        if match and gpu is not None:
            found[gpu].append(MigName(*match.groups()))
    return found
