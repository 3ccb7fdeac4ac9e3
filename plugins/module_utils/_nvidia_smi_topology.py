# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the connection matrix of ``nvidia-smi topo -m``.

Seen in real answers: escape sequences although the output is no terminal, blanks or tabs, header cells glued together
(NIC11CPU Affinity), rows cut off, NIC rows without the affinity columns, SOC as the old word for SYS, garbage in the
NIC legend when there are more than about 34 NICs, CPU lists cut to six entries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_AFFINITY = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_GPU = re.compile(r"GPU\d+")
_LINK = re.compile(r"X|NV\d+|SYS|SOC|NODE|PHB|PXB|PIX|PSB")
_WORD = re.compile(r"[A-Z][A-Z0-9!]*")  # a link, or a word that a later driver has for one
_LEGEND = re.compile(r"\s*(NIC\d+):\s*([A-Za-z][\w.-]*)\s*")
_LEGEND_ENTRY = re.compile(r"\s*(X|SYS|SOC|PIX)\s+=")
_NVLINK_LEGEND = re.compile(r"\s*NV#\s+=")
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_OLD_WORDS = {"SOC": "SYS"}


@dataclass
class Topology:
    """The matrix. A link is null where the answer did not show it.

    ``shows_nvlink`` is false when the legend says that this kind of matrix never shows NVLink (``topo -mp``).
    """

    gpus: list[list[str | None]]
    nics: list[tuple[str, list[str | None]]]
    cpus: list[str | None] = field(default_factory=list)
    numa: list[int | None] = field(default_factory=list)
    shows_nvlink: bool = True

    def fact(self) -> dict[str, object]:
        return {"gpus": self.gpus, "nics": [{"name": name, "gpus": row} for name, row in self.nics]}


def _header(lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Column names, names of the affinity columns, and the lines below the header."""
    for number, line in enumerate(lines):
        names = _AFFINITY.split(line, maxsplit=1)[0].split()
        if (
            names
            and _GPU.fullmatch(names[0])
            and not any(map(_LINK.fullmatch, names))
            and len(names) == len(set(names))
        ):
            return names, _AFFINITY.findall(line), lines[number + 1 :]
    return [], [], []


def _rows(names: list[str], lines: list[str]) -> dict[str, list[str]]:
    """The cells after the name, for each line that begins with the name of a column."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        name, *cells = line.split() or [""]
        if name in names and name not in rows and cells:
            rows[name] = cells
    return rows


def _link(cell: str) -> str | None:
    return _OLD_WORDS.get(cell, cell) if _WORD.fullmatch(cell) else None


def _matrix(names: list[str], rows: dict[str, list[str]]) -> dict[str, dict[str, str | None]]:
    """Links by row and column. What a cut row lacks is taken from the column, for links have no direction."""

    def cell(row: str, column: int) -> str | None:
        cells = rows.get(row, [])
        return _link(cells[column]) if column < len(cells) else None

    return {
        one: {
            other: "X" if row == column else cell(one, column) or cell(other, row) for column, other in enumerate(names)
        }
        for row, one in enumerate(names)
    }


def _affinity(cells: list[str], columns: list[str]) -> tuple[str | None, int | None]:
    """CPU list and NUMA node from what follows the links of a GPU row."""
    cpus = numa = None
    if cells and _CPUS.fullmatch(cells[0]):
        cpus = cells[0]
    if "NUMA Affinity" in columns and len(cells) > 1 and cells[1].isdigit():
        numa = int(cells[1])
    return cpus, numa


def parse_legend(lines: Iterable[str]) -> dict[str, str]:
    """Device names by column name. Garbled entries are left out, so that such a column keeps its own name."""
    return {match.group(1): match.group(2) for match in map(_LEGEND.fullmatch, lines) if match}


def parse_topology(text: str) -> Topology | None:
    """The topology, or null when the text holds no matrix."""
    lines = _ESCAPE.sub("", text).splitlines()
    names, affinity_columns, below = _header(lines)
    rows = _rows(names, below)
    gpus = [name for name in names if _GPU.fullmatch(name)]
    if not any(name in rows for name in gpus):
        return None
    matrix = _matrix(names, rows)
    legend = parse_legend(below)
    affinities = [_affinity(rows.get(gpu, [])[len(names) :], affinity_columns) for gpu in gpus]
    has_legend = any(map(_LEGEND_ENTRY.match, below))
    return Topology(
        gpus=[[matrix[one][other] for other in gpus] for one in gpus],
        nics=[(legend.get(name, name), [matrix[gpu][name] for gpu in gpus]) for name in names if name not in gpus],
        cpus=[cpus for cpus, _numa in affinities],
        numa=[numa for _cpus, numa in affinities],
        shows_nvlink=not has_legend or any(map(_NVLINK_LEGEND.match, below)),
    )
