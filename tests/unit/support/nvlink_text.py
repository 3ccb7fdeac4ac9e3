# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of a switched board whose links are as ``nvidia-smi nvlink --status`` recorded them."""

from __future__ import annotations

import re

_GPU = re.compile(r"GPU (\d+): (.*) \(UUID")
_LINK = re.compile(r"\s*Link \d+: (<inactive>|[\d.]+ GB/s)")


def status_of(text: str) -> dict[int, tuple[str, list[bool]]]:
    """Name and state of the links, by GPU."""
    found: dict[int, tuple[str, list[bool]]] = {}
    gpu = -1
    for line in text.splitlines():
        match = _GPU.match(line)
        if match:
            gpu = int(match.group(1))
            found[gpu] = (match.group(2), [])
        link = _LINK.match(line)
        if link:
            found[gpu][1].append(link.group(1) != "<inactive>")
    return found


def matrix_of(status: dict[int, tuple[str, list[bool]]]) -> list[list[str | None]]:
    active = [sum(links) for _name, links in status.values()]

    def link(one: int, two: int) -> str:
        if one == two:
            return "X"
        count = min(active[one], active[two])
        return f"NV{count}" if count else "SYS"

    return [[link(one, two) for two in range(len(active))] for one in range(len(active))]
