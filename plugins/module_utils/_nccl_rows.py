# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Result rows of nccl-tests, by the layout that the header of their table declares.

    size count type [redop] [root] | time algbw busbw #wrong [i_min i_max i_p99 i_cv%] | the same in place | [timestamp]

Releases before 2.11 leave redop and root out where a collective has none, and print the largest error instead of the
number of wrong elements. A line of another width is never taken for a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_ALIASES = {"bytes": "size", "N": "count", "op": "redop", "res": "error", "cputime": "time", "wrong": "#wrong"}
# Bounded, for nothing that is printed is longer, and the numbers of damaged text are.
_FIGURE = r"(?:[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,2})?|-?nan|-?inf)"
_OPERATIONS = "sum|prod|max|min|avg|mulsum|all|none"
_CELLS = {
    "size": r"[0-9]{1,20}",
    "count": r"[0-9]{1,20}",
    "type": rf"(?!(?:{_OPERATIONS})\b)[a-z][a-z0-9_]*",
    "redop": _OPERATIONS,
    "root": r"-?[0-9]{1,9}",
    "time": _FIGURE,
    "algbw": _FIGURE,
    "busbw": _FIGURE,
    "#wrong": r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+?[0-9]{1,2})?|N/A",
    "error": rf"{_FIGURE}|N/A",
    "i_min": _FIGURE,
    "i_max": _FIGURE,
    "i_p99": _FIGURE,
    "i_cv%": _FIGURE,
    "timestamp": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
}
FIELD_GAP = 2  # blanks between full fields
_UNKNOWN = r"\S+"  # columns of variants, such as algo and nchannels of AMD's
_HEAD = ("size", "count", "type", "redop", "root")
_BEGINNING = re.compile(r"\s*\d+\s+\d+\s+[a-z]")
_NUMBER_FIRST = re.compile(r"\s*\d+\s+[a-z\d]")
_REMAINDER = re.compile(r"\s*(?:(?:-?\d[\d.e+-]*|N/A|nan|inf)(?:\s+|$))+")


@dataclass(frozen=True)
class Layout:
    """Columns of one table, and the expression that a row must match as a whole."""

    columns: tuple[str, ...]
    expression: re.Pattern[str]

    @property
    def counts(self) -> bool:
        """Whether wrong elements are counted (since 2.11)."""
        return "#wrong" in self.columns


def _expression(columns: tuple[str, ...]) -> re.Pattern[str]:
    parts = []
    for place, name in enumerate(columns):
        blank = r"\s*" if place == 0 else r"\s+"
        cell = f"{blank}({_CELLS.get(name, _UNKNOWN)})"
        # Left blank by old releases for collectives without an operation. It cannot be taken for a type or a number.
        parts.append(f"(?:{cell})?" if name == "redop" and "root" not in columns else cell)
    return re.compile("".join(parts) + r"\s*")


def _layout(columns: tuple[str, ...]) -> Layout:
    return Layout(columns, _expression(columns))


_PLACE = ("time", "algbw", "busbw")
# For logs that begin below the header.
HEADLESS = (
    _layout((*_HEAD, *_PLACE, "#wrong", *_PLACE, "#wrong")),
    _layout((*_HEAD[:4], *_PLACE, "error", *_PLACE, "error")),
)


def read_header(text: str) -> Layout | None:
    """The layout that a header line declares; null when the line is none. Variants may add columns at the end."""
    names = tuple(_ALIASES.get(name, name) for name in text.strip().lstrip("#").split())
    if names[:3] != _HEAD[:3] or any(names.count(name) != 2 for name in _PLACE):
        return None
    last = max(place for place, name in enumerate(names) if name in {"#wrong", "error", "busbw"})
    if names[last] == "busbw" or any(name not in _CELLS for name in names[:last]):
        return None
    return _layout(names)


def begins_row(text: str, in_table: bool) -> bool:
    """Whether a line can only be the beginning of a row, or some number inside of a table."""
    return (_NUMBER_FIRST if in_table else _BEGINNING).match(text) is not None


def continues_row(text: str) -> bool:
    return _REMAINDER.fullmatch(text) is not None


def _figure(text: str | None) -> float | None:
    if text is None or text == "N/A" or "nan" in text or "inf" in text:
        return None
    return float(text)


def _place(cells: dict[str, str | None]) -> dict[str, Any]:
    wrong = _figure(cells.get("#wrong"))
    place: dict[str, Any] = {
        "time_us": _figure(cells["time"]),
        "algbw": _figure(cells["algbw"]),
        "busbw": _figure(cells["busbw"]),
        "wrong": int(wrong) if wrong is not None else None,
    }
    error = _figure(cells.get("error"))
    if error is not None:
        place["error"] = error
    return place


def read_row(text: str, layout: Layout) -> dict[str, Any] | None:
    """The row; null when the line does not have exactly the cells of the layout."""
    match = layout.expression.fullmatch(text)
    if match is None:
        return None
    cells = list(zip(layout.columns, match.groups()))
    second = [place for place, name in enumerate(layout.columns) if name == "time"][1]
    head = dict(cells[:second])
    root = head.get("root")
    return {
        "size": int(head["size"] or 0),
        "count": int(head["count"] or 0),
        "type": head["type"],
        "redop": head.get("redop"),
        "root": int(root) if root is not None else None,
        "out_of_place": _place(head),
        "in_place": _place(dict(cells[second:])),
    }


def may_be_cut(text: str, layout: Layout) -> bool:
    """Whether a row at the end of a log that ends without a line feed may end inside its last cell.

    Both counts of a row are printed right-aligned in fields of one width, so a cut one makes a narrower field. One that
    fills its field may also go on.
    """
    match = layout.expression.fullmatch(text.rstrip())
    if match is None or layout.columns[-1] == "timestamp" or match.group(len(layout.columns)) == "N/A":
        return match is None
    counts = [place for place, name in enumerate(layout.columns, 1) if name in {"#wrong", "error"}]
    if counts[-1] != len(layout.columns):
        return True
    (gap, width), (last_gap, last_width) = (
        (match.start(place) - match.end(place - 1), match.end(place) - match.end(place - 1)) for place in counts
    )
    return width != last_width or last_gap <= FIELD_GAP < gap
