# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the runs of nccl-tests in a log together, also of cut logs and of copies that got mixed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable

from ._nccl_failures import ENDINGS, failures_in
from ._nccl_lines import Line, lines_of
from ._nccl_rows import HEADLESS, begins_row, continues_row, may_be_cut, read_header, read_row
from ._nccl_run import Run, are_copies, result

if TYPE_CHECKING:
    from ._nccl_rows import Layout

_COLLECTIVE = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all(?:v|2)?|broadcast|reduce|gather|scatter|sendrecv|hypercube)_perf"
)
_VERSION = re.compile(r"#\s*nccl-tests version (\S+)(?:.*nccl-library=([0-9]{1,9}))?|rccl-tests: Version (\S+)")
_LIBRARY = re.compile(r"\b[NR]CCL version ?:? ?(\d+\.\d+(?:\.\d+)?)")
_STARTING = re.compile(r"#\s*Collective test starting: (\w+)")
_CONCLUDED = re.compile(r"#\s*Collective test concluded: ")
_PARAMETERS = re.compile(r"#?\s*nThreads? ?:? \d+ ")
_DEVICE = re.compile(
    r"#\s*Rank\s+(?P<rank>[0-9]{1,9})(?: Group\s+\d+)?(?: Pid\s+(?P<pid>[0-9]{1,9}))? on\s+(?P<host>\S+)"
    r" device\s+(?P<device>[0-9]{1,9}) \[(?P<bus>[^\]]*)\]\s*(?P<name>.*)"
)
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*: ([0-9]{1,18})")
_AVERAGE = re.compile(
    r"#?\s*Avg bus bandwidth\s*: (-?nan|-?inf|[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,2})?)(?:\s|$)"
)


class _Reader:
    """Reads line after line. Each kind of line has one method, and one pattern in ``_KINDS``."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._current: dict[str, Run] = {}
        self._collective: str | None = None
        self._library: str | None = None
        self._homeless: set[str] = set()  # failures before anything that nccl-tests printed
        self._homeless_ending = False

    # Runs

    def _new(self, line: Line) -> Run:
        run = Run(line.stream, line.number, line.number, collective=self._collective, library=self._library)
        run.failures, self._homeless = self._homeless, set()
        run.ending, self._homeless_ending = self._homeless_ending, False
        self.runs.append(run)
        self._current[line.stream] = run
        return run

    def _beginning(self, line: Line) -> Run:
        """The run that a line of a run's head belongs to."""
        run = self._current.get(line.stream)
        if run is None or run.printing:
            return self._new(line)
        return run

    def _going(self, line: Line) -> Run:
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
        run.averages.append(None if "n" in text else float(text))

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
        elif not line.ended and run.layout is not None and may_be_cut(text, run.layout):
            run.damaged += 1
        else:
            run.mixed = run.mixed or run.closed
            run.rows.append(row)

    @staticmethod
    def _parse(run: Run, text: str) -> dict[str, Any] | None:
        if run.layout is not None:
            return read_row(text, run.layout)
        for layout in HEADLESS:
            row = read_row(text, layout)
            if row is not None:
                run.layout = layout
                return row
        return None

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

    def finish(self, lines: int) -> list[Run]:
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


def parse_log(text: str) -> list[dict[str, Any]]:
    """Runs of nccl-tests in a log, in their order. A log without any is one run without rows; an empty one has none."""
    reader = _Reader()
    count = 0
    for line in lines_of(text):
        reader.read(line)
        count += 1
    runs = reader.finish(count)
    return [result(run, any(are_copies(run, other) for other in runs)) for run in runs]
