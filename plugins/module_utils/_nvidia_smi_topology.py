# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the connection matrix of ``nvidia-smi topo -m``.

Seen in real answers: escape sequences although the output is no terminal, blanks or tabs, cells glued together
(NIC11CPU Affinity, PXBNODE), empty cells, rows cut off, NIC rows without the affinity columns, SOC as the old word for
SYS, garbage in the NIC legend when there are more than about 34 NICs, CPU lists cut to six entries.
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
_LINK = re.compile(r"X|NV[0-9]+|SYS|SOC|NODE|PHB|PXB|PIX|PSB")
_GLUED_LINKS = re.compile(rf"(?:{_LINK.pattern})+")
_GLUED_NAMES = re.compile(r"(?:(?:GPU|NIC)\d+)+")
_WORD = re.compile(r"[A-Z][A-Z0-9!]*")  # a link, or a word that a later driver has for one
_LEGEND = re.compile(r"\s*(NIC\d+):\s*([A-Za-z][\w.-]*)\s*")
_LEGEND_ENTRY = re.compile(r"\s*(X|SYS|SOC|PIX)\s+=")
_NVLINK_LEGEND = re.compile(r"\s*NV#\s+=")
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_NUMA = re.compile(r"[0-9]{1,4}")
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
        names: list[str] = []
        for word in _AFFINITY.split(line, maxsplit=1)[0].split():
            names += re.findall(r"[A-Z]+\d+", word) if _GLUED_NAMES.fullmatch(word) else [word]
        is_header = bool(names) and _GPU.fullmatch(names[0]) and not any(map(_LINK.fullmatch, names))
        if is_header and len(names) == len(set(names)):
            return names, _AFFINITY.findall(line), lines[number + 1 :]
    return [], [], []


def _links(text: str) -> list[str]:
    """The links in a cell: one, several that are glued together, or none."""
    if _GLUED_LINKS.fullmatch(text):
        return [_OLD_WORDS.get(link, link) for link in _LINK.findall(text)]
    return [text] if _WORD.fullmatch(text) else []


@dataclass
class _Row:
    """The links of one row, and the cells behind them: CPUs and NUMA node of a GPU."""

    links: list[str]
    rest: list[str]


def _row(fields: list[str], place: int, count: int) -> _Row | None:
    """Read the cells of the row at this place of the matrix. Null when they do not fit: nothing is shifted into place.

    What a row that was cut has left is kept, but for its last link, which may be cut too.
    """
    row = _Row([], [])
    for number, text in enumerate(fields):
        words = [link for word in text.split() for link in _links(word)]
        if len(row.links) == count or not words:
            row.rest = [rest.strip() for rest in fields[number:]]
            break
        row.links += words
    cut = len(row.links) < count
    too_few, too_many = cut and any(row.rest), len(row.links) > count or bool(row.rest and _links(row.rest[0]))
    if too_few or too_many or (place < len(row.links) and row.links[place] != "X"):
        return None
    if cut:
        row.links.pop()
    return row


def _rows(names: list[str], lines: list[str]) -> dict[str, _Row]:
    """The rows by name. Tabs keep empty cells apart; of blanks, nobody knows."""
    rows: dict[str, _Row] = {}
    for line in lines:
        name, *fields = line.strip().split("\t") if "\t" in line else line.split() or [""]
        name = name.strip()
        if name in names and name not in rows and fields:
            row = _row(fields, names.index(name), len(names))
            if row is not None:
                rows[name] = row
    return rows


def _matrix(names: list[str], rows: dict[str, _Row]) -> dict[str, dict[str, str | None]]:
    """Links by row and column. What a cut row lacks is taken from the column, for links have no direction."""

    def cell(row: str, column: int) -> str | None:
        links = rows[row].links if row in rows else []
        return links[column] if column < len(links) else None

    return {
        one: {
            other: "X" if row == column else cell(one, column) or cell(other, row) for column, other in enumerate(names)
        }
        for row, one in enumerate(names)
    }


def _affinity(row: _Row | None, columns: list[str]) -> tuple[str | None, int | None]:
    """CPU list and NUMA node from what follows the links of a GPU row. An empty cell among blanks moves the others."""
    cells = row.rest if row is not None else []
    if len(cells) < len(columns):
        return None, None
    cpus = cells[0] if cells and _CPUS.fullmatch(cells[0]) else None
    numa = int(cells[1]) if "NUMA Affinity" in columns and _NUMA.fullmatch(cells[1]) else None
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
    affinities = [_affinity(rows.get(gpu), affinity_columns) for gpu in gpus]
    has_legend = any(map(_LEGEND_ENTRY.match, below))
    return Topology(
        gpus=[[matrix[one][other] for other in gpus] for one in gpus],
        nics=[(legend.get(name, name), [matrix[gpu][name] for gpu in gpus]) for name in names if name not in gpus],
        cpus=[cpus for cpus, _numa in affinities],
        numa=[numa for _cpus, numa in affinities],
        shows_nvlink=not has_legend or any(map(_NVLINK_LEGEND.match, below)),
    )
