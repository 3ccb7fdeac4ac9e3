# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the runs of nccl-tests in a log together, also of cut logs and of copies that got mixed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable

from ._nccl_failures import ENDINGS, failures_in
from ._nccl_lines import Line, lines_of
from ._nccl_rows import HEADLESS, Layout, begins_row, continues_row, read_header, read_row

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
_COLLECTIVE = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all(?:v|2)?|broadcast|reduce|gather|scatter|sendrecv|hypercube)_perf"
)
_VERSION = re.compile(r"#\s*nccl-tests version (\S+)(?:.*nccl-library=(\d+))?|rccl-tests: Version (\S+)")
_LIBRARY = re.compile(r"\b[NR]CCL version (\d+\.\d+(?:\.\d+)?)")
_STARTING = re.compile(r"#\s*Collective test starting: (\w+)")
_CONCLUDED = re.compile(r"#\s*Collective test concluded: ")
_PARAMETERS = re.compile(r"#?\s*nThreads? ?:? \d+ ")
_VALIDATION = re.compile(r"\bvalidation: (\d+)")
_DEVICE = re.compile(
    r"#\s*Rank\s+(?P<rank>\d+)(?: Group\s+\d+)?(?: Pid\s+(?P<pid>\d+))? on\s+(?P<host>\S+)"
    r" device\s+(?P<device>\d+) \[(?P<bus>[^\]]*)\]\s*(?P<name>.*)"
)
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*: (\d+)")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*: (-?nan|-?inf|[\d.e+-]+)")
# The rank in a tag such as 1,0 or prterun-node01-4711@1,0 or 0, but none in the name of a host.
_RANK = re.compile(r"(?:^|,)(\d+)$")


@dataclass
class _Run:
    """What is known of one run so far."""

    stream: str
    first: int
    last: int
    collective: str | None = None
    version: str | None = None
    library: str | None = None
    validation: bool | None = None
    heads: int = 0
    devices: list[dict[str, Any]] = field(default_factory=list)
    layout: Layout | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    row_width: int = 0
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


class _Reader:
    """Reads line after line. Each kind of line has one method, and one pattern in ``_KINDS``."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self._current: dict[str, _Run] = {}
        self._collective: str | None = None
        self._library: str | None = None
        self._homeless: set[str] = set()  # failures before anything that nccl-tests printed
        self._homeless_ending = False

    # Runs

    def _new(self, line: Line) -> _Run:
        run = _Run(line.stream, line.number, line.number, collective=self._collective, library=self._library)
        run.failures, self._homeless = self._homeless, set()
        run.ending, self._homeless_ending = self._homeless_ending, False
        self.runs.append(run)
        self._current[line.stream] = run
        return run

    def _beginning(self, line: Line) -> _Run:
        """The run that a line of a run's head belongs to."""
        run = self._current.get(line.stream)
        if run is None or run.printing:
            return self._new(line)
        return run

    def _going(self, line: Line) -> _Run:
        """The run that a line of a run's results belongs to."""
        return self._current.get(line.stream) or self._new(line)

    # Kinds of lines

    def _version(self, line: Line, match: re.Match[str]) -> None:
        run = self._beginning(line)
        tests, library, rccl = match.groups()
        run.version = tests or rccl
        if library:
            number = int(library)
            run.library = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def _starting(self, line: Line, match: re.Match[str]) -> None:
        found = _COLLECTIVE.match(match.group(1))
        self._beginning(line).collective = found.group(1) if found else match.group(1)

    def _concluding(self, line: Line, _match: re.Match[str]) -> None:
        self._going(line).concluded = True

    def _parameters(self, line: Line, _match: re.Match[str]) -> None:
        run = self._beginning(line)
        run.heads += 1
        run.mixed = run.mixed or run.heads > 1
        validation = _VALIDATION.search(line.text)
        run.validation = bool(int(validation.group(1))) if validation else run.validation

    def _device(self, line: Line, match: re.Match[str]) -> None:
        run = self._beginning(line)
        pid, rank = match["pid"], int(match["rank"])
        run.mixed = run.mixed or any(device["rank"] == rank for device in run.devices)
        run.devices.append(
            {
                "rank": rank,
                "host": match["host"],
                "pid": int(pid) if pid else None,
                "device": int(match["device"]),
                "bus": match["bus"],
                "name": match["name"].strip() or None,
            }
        )

    def _bounds(self, line: Line, match: re.Match[str]) -> None:
        run = self._going(line)
        run.drop_fragment()
        run.mixed = run.mixed or bool(run.bounds)
        run.bounds.append(int(match.group(1)))

    def _average(self, line: Line, match: re.Match[str]) -> None:
        run = self._going(line)
        run.drop_fragment()
        run.mixed = run.mixed or bool(run.averages)
        text = match.group(1)
        try:
            run.averages.append(None if "n" in text else float(text))
        except ValueError:
            run.damaged += 1

    def _header(self, line: Line, layout: Layout) -> None:
        run = self._current.get(line.stream)
        if run is None or run.closed or (run.rows and not run.mixed):
            run = self._new(line)
        run.mixed = run.mixed or run.layout is not None
        run.layout = layout

    # Rows

    def _row(self, line: Line) -> None:
        """A row, the beginning of one, or the rest of one."""
        run = self._going(line)
        text = line.text
        if run.fragment and continues_row(text):
            text = f"{run.fragment} {text.strip()}"
            run.fragment = ""
        elif continues_row(text):
            run.damaged += 1
            return
        run.drop_fragment()
        row = self._parse(run, text)
        if row is None:
            run.fragment = text.rstrip()
        elif self._cut(run, line):
            run.damaged += 1
        else:
            run.mixed = run.mixed or run.closed
            run.rows.append(row)
            run.row_width = max(run.row_width, len(text.rstrip()))

    @staticmethod
    def _parse(run: _Run, text: str) -> dict[str, Any] | None:
        if run.layout is not None:
            return read_row(text, run.layout)
        for layout in HEADLESS:
            row = read_row(text, layout)
            if row is not None:
                run.layout = layout
                return row
        return None

    @staticmethod
    def _cut(run: _Run, line: Line) -> bool:
        """Whether a log that ends without a line feed ends inside the last cell of this row."""
        width = run.row_width or (run.layout.width if run.layout else 0)
        return not line.ended and len(line.text.rstrip()) < width

    # All lines

    def read(self, line: Line) -> None:
        self._find_library(line, line.log)
        self._read_text(line)
        run = self._current.get(line.stream)
        if run is not None and line.text:
            run.last = line.number

    def _find_library(self, line: Line, text: str) -> None:
        match = _LIBRARY.search(text)
        if match is None:
            return
        run = self._current.get(line.stream) or (self.runs[-1] if self.runs else None)
        if run is not None and not run.printing:
            run.library = run.library or match.group(1)
        else:
            self._library = match.group(1)

    def _read_text(self, line: Line) -> None:
        text = line.text.strip()
        if not text:
            return
        for pattern, method in _KINDS:
            match = pattern.match(text)
            if match is not None:
                method(self, line, match)
                return
        layout = read_header(line.text)
        run = self._current.get(line.stream)
        in_table = run is not None and run.layout is not None and not run.closed
        if layout is not None:
            self._header(line, layout)
        elif begins_row(text, in_table) or (in_table and continues_row(text)):
            self._row(line)
        else:
            self._read_words(line)

    def _read_words(self, line: Line) -> None:
        """A line of a launcher, of a shell, or of a failure."""
        self._find_library(line, line.text)
        named = _COLLECTIVE.search(line.text)
        if named:
            self._collective = named.group(1)
        failures = failures_in(line.text)
        ending = ENDINGS.search(line.text) is not None
        if self.runs:
            run = self.runs[-1]
            run.failures.update(failures)
            run.ending = run.ending or ending
            run.broken = run.broken or bool(failures)
        else:
            self._homeless.update(failures)
            self._homeless_ending = self._homeless_ending or ending

    def finish(self, lines: int) -> list[_Run]:
        if not self.runs and lines:
            self._new(Line(0, "", "", "", True))
        for run in self.runs:
            run.drop_fragment()
        return self.runs


_KINDS: tuple[tuple[re.Pattern[str], Callable[[_Reader, Line, re.Match[str]], None]], ...] = (
    (_VERSION, _Reader._version),
    (_STARTING, _Reader._starting),
    (_CONCLUDED, _Reader._concluding),
    (_PARAMETERS, _Reader._parameters),
    (_DEVICE, _Reader._device),
    (_BOUNDS, _Reader._bounds),
    (_AVERAGE, _Reader._average),
)


def _places(run: _Run) -> list[dict[str, Any]]:
    return [row[place] for row in run.rows for place in ("out_of_place", "in_place")]


def _peak(run: _Run, place: str) -> float | None:
    return max((row[place]["busbw"] for row in run.rows if row[place]["busbw"] is not None), default=None)


def _wrong(run: _Run, checked: bool) -> int | None:
    """Wrong elements of all rows. Releases that print the error instead count places out of bounds at the end."""
    if not checked:
        return None
    if run.layout is not None and run.layout.counts:
        return sum(int(place["wrong"]) for place in _places(run) if place["wrong"] is not None)
    return sum(run.bounds) if run.bounds else None


def _result(run: _Run, copies: bool) -> dict[str, Any]:
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


def _are_copies(one: _Run, other: _Run) -> bool:
    """Whether two runs are copies of one launch that know nothing of each other.

    Only the first rank of a launch prints a table. So these have two first ranks, or print at the same time.
    """
    if one.stream == other.stream:
        return False
    ranks = _RANK.search(one.stream), _RANK.search(other.stream)
    if ranks[0] and ranks[1] and ranks[0].group(1) != ranks[1].group(1):
        return True
    return other.first <= one.last and one.first <= other.last


def parse_log(text: str) -> list[dict[str, Any]]:
    """Runs of nccl-tests in a log, in their order. A log without any is one run without rows; an empty one has none."""
    reader = _Reader()
    count = 0
    for line in lines_of(text):
        reader.read(line)
        count += 1
    runs = reader.finish(count)
    return [_result(run, any(_are_copies(run, other) for other in runs)) for run in runs]
