# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the connection matrix says about NVLink: links of a GPU, their generation, and which GPU lost some."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Modules on a baseboard are always connected by NVLink. PCIe cards may be bridged (those named NVL are), most are not.
_MODULE_NAMES = re.compile(r"SXM|HBM3|\bH200\b|\bH20\b|\bG?B[123]00\b")
_CARD_NAMES = re.compile(r"PCIe|\bNVL\b", re.IGNORECASE)
# Most links that a GPU of an architecture has: what a pair shows beyond is carried by switches.
_MOST_LINKS = {"Pascal": 4, "Volta": 6, "Turing": 2, "Ampere": 12, "Hopper": 18, "Blackwell": 18}
_GENERATIONS = {"Pascal": 1, "Volta": 2, "Turing": 2, "Ampere": 3, "Hopper": 4, "Blackwell": 5}
_NVLINK = re.compile(r"NV([0-9]{1,4})")
MOST_BRIDGED = 3  # partners that a bridge of PCIe cards can give: NVL4
_BY_NAME = (("P100", "Pascal"), ("V100", "Volta"), ("A100", "Ampere"), ("A800", "Ampere"), ("H100", "Hopper"))


@dataclass(frozen=True)
class Board:
    """What of a device matters here."""

    name: str
    architecture: str | None
    mig: bool

    @property
    def family(self) -> str | None:
        """Architecture as reported, or by the name where a driver is too old to report it."""
        return self.architecture or next((family for name, family in _BY_NAME if name in self.name), None)

    @property
    def fabric(self) -> bool:
        return on_baseboard(self.name) or "NVL" in self.name.split()


def on_baseboard(name: str) -> bool:
    """Whether a GPU of this name is a module on a baseboard (SXM), which gives it all PCIe lanes and NVLink."""
    return bool(_MODULE_NAMES.search(name)) and not _CARD_NAMES.search(name)


def _count(link: str | None) -> int | None:
    """Links of one connection; null where the matrix has no answer."""
    if link is None:
        return None
    match = _NVLINK.fullmatch(link)
    return int(match.group(1)) if match else 0


def _links(gpus: list[list[str | None]], ignored: set[int]) -> dict[int, list[int]]:
    """For each GPU whose row is whole, the number of links to each other one."""
    rows: dict[int, list[int]] = {}
    for one, row in enumerate(gpus):
        counts = [_count(link) for other, link in enumerate(row) if other != one and other not in ignored]
        if one not in ignored and counts and None not in counts:
            rows[one] = [count for count in counts if count is not None]
    return rows


def links_per_gpu(gpus: list[list[str | None]], boards: list[Board]) -> int:
    """Links of a healthy GPU of this host; 0 without NVLink.

    Directly connected GPUs share their links among their peers (the sum counts); through switches, each pair
    shows all links of a GPU (the greatest counts). The sum is possible only up to what the architecture has.
    """
    family = next((board.family for board in boards if board.family), None)
    most = _MOST_LINKS.get(family or "", max(_MOST_LINKS.values()))
    rows = [row for row in _links(gpus, set()).values() if any(row)]
    return max((sum(row) if sum(row) <= most else max(row) for row in rows), default=0)


def generation(boards: list[Board]) -> int | None:
    family = next((board.family for board in boards if board.family), None)
    return _GENERATIONS.get(family or "")


def _culprits(deficits: dict[int, int], weak: set[int]) -> set[int]:
    """The GPUs that explain all missing links: the weak ones, then those that miss most.

    A lost connection shows in the rows of both its ends, so those of a dead GPU show in the rows of all its peers.
    """
    named = set(weak)
    left = {index: deficit for index, deficit in deficits.items() if index not in named}
    while left and sum(left.values()) > sum(deficits.get(index, 0) for index in named):
        worst = max(left.values())
        named |= {index for index, deficit in left.items() if deficit == worst}
        left = {index: deficit for index, deficit in left.items() if index not in named}
    return named


def inactive(gpus: list[list[str | None]], boards: list[Board]) -> dict[int, str]:
    """GPUs that have fewer links than they should, with the evidence.

    The yardstick is the GPU of the same product that has most. A GPU without any link is a fault only where all are
    connected by NVLink; a PCIe card without a bridge is none. GPUs in MIG mode have no links to others, and no verdict.
    """
    rows = _links(gpus, {index for index, board in enumerate(boards) if board.mig})
    # More partners than bridges can connect: a fabric, whatever the name says.
    meshed = any(sum(1 for count in row if count) > MOST_BRIDGED for row in rows.values())
    fabric = {index for index in rows if meshed or boards[index].fabric}
    sums = {index: sum(row) for index, row in rows.items() if any(row) or index in fabric}
    found: set[int] = set()
    for name in {boards[index].name for index in sums}:
        peers = [index for index in sums if boards[index].name == name]
        most, best = max(sums[index] for index in peers), max(max(rows[index]) for index in peers)
        weak = {index for index in peers if max(rows[index]) < best or most == 0}
        found |= _culprits({index: most - sums[index] for index in peers if sums[index] < most}, weak)
    return {index: f"its connections are {' '.join(map(str, gpus[index]))}" for index in sorted(found)}
