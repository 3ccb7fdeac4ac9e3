# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a log of nccl-tests: freed of the tags of launchers and of what NCCL's own log put into them.

mpirun, srun and kubectl write who said a line in front of it. NCCL_DEBUG writes into the middle of a result row, for
nccl-tests prints the beginning of a row before it runs the test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NUMBER = r"(?:-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|N/A)"
# What nccl-tests itself prints: a comment, a row, or the rest of a row.
_CONTENT = re.compile(rf"\s*(?:#|\d+\s+\d+\s+[a-z]|{_NUMBER}(?:\s+{_NUMBER})*\s*$)")
_TIME = re.compile(r"\s*\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s|\s*\w{3} \w{3} +\d+ [\d:]+ \d{4}(?=\[)")
_TAG = re.compile(
    r"\s*(?:"
    r"\[(?P<mpi>[^\]\s]{1,100})\]<std\w+>:? ?"  # mpirun --tag-output: [1,0]<stdout>:
    r"|\[(?P<box>[^\]\s]{1,100})\]:? "  # hydra: [0], kubectl --prefix: [pod/name/container]
    r"|(?P<label>[\w.-]{1,100}): ?"  # srun --label: 0:, clush and pdsh: node01:
    r")"
)
# host:pid:thread [device] NCCL INFO, with a file name or a time in between or before, by release.
# The host's name may be glued to a cell before it; then it is taken to begin with a letter.
_LOG = re.compile(
    r"(?:\[\d{4}-[^\]]*\] ?)?(?:(?:^\s*|(?<=>:))[\w.-]+|[A-Za-z][\w.-]*)"
    r":\d+:\d+ \[-?\d*\].*?NCCL (?:INFO|WARN|TRACE|ERROR|ABORT).*"
)


@dataclass(frozen=True)
class Line:
    """One line. ``stream`` is who said it (empty without tags), ``log`` what NCCL's log said in it."""

    number: int
    stream: str
    text: str
    log: str
    ended: bool  # by a line feed: the last line of a cut log is not


def _untag(line: str) -> tuple[str, str]:
    """Stream and text of a line. A tag is one only in front of something that nccl-tests prints."""
    rest = line
    names: list[str] = []
    for _attempt in range(4):
        if _CONTENT.match(rest):
            return "/".join(names), rest
        time = _TIME.match(rest)
        tag = None if time else _TAG.match(rest)
        if time is None and tag is None:
            break
        if tag is not None:
            names.append(next(name for name in tag.groups() if name is not None))
        rest = rest[(time or tag).end() :]  # type: ignore[union-attr]
    if not rest.strip() and names:
        return "/".join(names), ""
    return "", line


def _cut_log(text: str) -> tuple[str, str]:
    """Split a line into what stands before NCCL's log, and the log."""
    match = _LOG.search(text)
    if match is None:
        return text, ""
    before, log = text[: match.start()], match.group()
    if before.endswith("N/") and log.startswith("A"):  # the cell N/A, and the host's name glued to it
        before, log = f"{before}A", log[1:]
    return before, log


def lines_of(text: str) -> Iterator[Line]:
    """All lines that are not blank."""
    for number, raw in enumerate(text.splitlines(keepends=True)):
        line = _ESCAPE.sub("", raw.rstrip("\r\n"))
        before, log = _cut_log(line)
        stream, content = _untag(before)
        if not content.strip() and log:
            content = ""
        if content.strip() or log:
            yield Line(number, stream, content, log, raw.endswith(("\n", "\r")))
