# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of nccl-tests: what is known of it, and what that means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._nccl_rows import Layout

PROBLEMS = (
    "wrong_data",
    "incomplete",
    "no_rows",
    "crashed",
    "nccl_error",
    "cuda_error",
    "usage",
    "interleaved_copies",
    "single_rank",
    "not_checked",
)
# The rank in a tag such as 1,0 or prterun-node01-4711@1,0 or 0, but none in the name of a host.
_RANK = re.compile(r"(?:^|,)(\d+)$")


@dataclass
class Run:
    """What is known of one run so far."""

    stream: str
    first: int
    last: int
    collective: str | None = None
    version: str | None = None
    library: str | None = None
    heads: int = 0
    devices: list[dict[str, Any]] = field(default_factory=list)
    layout: Layout | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    fragment: str = ""  # the beginning of a row whose rest may follow after NCCL's log
    damaged: int = 0
    bounds: list[int] = field(default_factory=list)
    averages: list[float | None] = field(default_factory=list)
    concluded: bool = False
    mixed: bool = False
    failures: set[str] = field(default_factory=set)
    ending: bool = False
    broken: bool = False

    @property
    def closed(self) -> bool:
        return bool(self.bounds or self.averages) or self.concluded

    @property
    def printing(self) -> bool:
        """Whether results or failures were printed: what begins after that is another run."""
        return self.closed or self.broken or bool(self.rows)

    @property
    def complete(self) -> bool:
        return self.closed and not self.damaged

    def drop_fragment(self) -> None:
        if self.fragment:
            self.damaged += 1
            self.fragment = ""


def _places(run: Run) -> list[dict[str, Any]]:
    return [row[place] for row in run.rows for place in ("out_of_place", "in_place")]


def _peak(run: Run, place: str) -> float | None:
    return max((row[place]["busbw"] for row in run.rows if row[place]["busbw"] is not None), default=None)


def _wrong(run: Run, checked: bool) -> int | None:
    """Wrong elements of all rows. Releases that print the error instead count places out of bounds at the end."""
    if not checked:
        return None
    if run.layout is not None and run.layout.counts:
        return sum(int(place["wrong"]) for place in _places(run) if place["wrong"] is not None)
    return sum(run.bounds) if run.bounds else None


def result(run: Run, copies: bool) -> dict[str, Any]:
    """The run in the form of the contract."""
    checked = any(place["wrong"] is not None or place.get("error") is not None for place in _places(run))
    wrong = _wrong(run, checked)
    ranks = max((device["rank"] for device in run.devices), default=-1) + 1 or None
    found = set(run.failures)
    if wrong or any(run.bounds):
        found.add("wrong_data")
    if not run.complete:
        found.add("incomplete")
    if not run.rows:
        found.add("no_rows")
    if run.ending and not run.complete:
        found.add("crashed")
    if run.mixed or copies:
        found.add("interleaved_copies")
    if ranks == 1:
        found.add("single_rank")
    if run.rows and not checked:
        found.add("not_checked")
    return {
        "collective": run.collective,
        "version": run.version,
        "nccl_version": run.library,
        "ranks": ranks,
        "devices": run.devices,
        "rows": run.rows,
        "avg_busbw": run.averages[0] if run.averages else None,
        "out_of_bounds": sum(run.bounds) if run.bounds else None,
        "peak": {"out_of_place": _peak(run, "out_of_place"), "in_place": _peak(run, "in_place")},
        "wrong": wrong,
        "checked": checked,
        "complete": run.complete,
        "problems": [code for code in PROBLEMS if code in found],
    }


def are_copies(one: Run, other: Run) -> bool:
    """Whether two runs are copies of one launch that know nothing of each other.

    Only the first rank of a launch prints a table. So these have two first ranks, or print at the same time.
    """
    if one.stream == other.stream:
        return False
    ranks = _RANK.search(one.stream), _RANK.search(other.stream)
    if ranks[0] and ranks[1] and ranks[0].group(1) != ranks[1].group(1):
        return True
    return other.first <= one.last and one.first <= other.last
