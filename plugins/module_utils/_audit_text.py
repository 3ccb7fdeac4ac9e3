# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit on a terminal: few lines, however many equal hosts there are. Private to this collection."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ._audit_look import ITEMS, NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_LINES = 20  # of one section
MOST_NAMES = 8  # of one line, ranges counted once
LONGEST_VALUE = 160
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def _parts(name: str) -> tuple[str, str, str] | None:
    """A name around its last number; of a qualified name, around that of its first label."""
    label, dot, domain = name.partition(".")
    if not label.isdecimal() and (match := _NUMBERED.fullmatch(label)):
        return match[1], match[2], match[3] + dot + domain
    match = _NUMBERED.fullmatch(name) if label.isdecimal() else None
    return (match[1], match[2], match[3]) if match else None


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def fold(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Host names as a short text: n[1-997], n1000 and so on; what is beyond `most` names or ranges is only counted."""
    numbers: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    plain: list[str] = []
    for name in dict.fromkeys(names):
        parts = _parts(name)
        if parts is None:
            plain.append(name)
        else:
            # n08 and n10 belong together, n8 and n10 too; n8 and n08 do not.
            padded = len(parts[1]) if parts[1].startswith("0") or len(parts[1]) > 1 else 0
            numbers[parts[0], parts[2], padded].append(int(parts[1]))
    for before, after, width in [key for key in numbers if key[2]]:
        found = numbers[before, after, width]
        if min(found) >= 10 ** (width - 1):  # nothing of this width is padded
            numbers[before, after, 0] += numbers.pop((before, after, width))
    texts: list[tuple[str, int]] = [(name, 1) for name in plain]
    for (before, after, width), found in numbers.items():
        for first, last in _runs(found):
            if last - first < 2:
                texts += [(f"{before}{number:0{width}d}{after}", 1) for number in range(first, last + 1)]
            else:
                texts.append((f"{before}[{first:0{width}d}-{last:0{width}d}]{after}", last - first + 1))
    shown = ", ".join(text for text, _count in texts[:most])
    hidden = sum(count for _text, count in texts[most:])
    return f"{shown} and {hidden:,} more" if hidden else shown


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "\u2026"


def describe(problem: dict[str, Any]) -> str:
    where = f" {problem['device']}" if problem["device"] else ""
    return f"{problem['code']}{where}: {problem['detail']}" if problem["detail"] else f"{problem['code']}{where}"


def _differences(kinds: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for kind in kinds:
        for item, found in kind["items"].items():
            if found["usual"] is None:
                usual = f"no majority of {kind['kind']}"
            else:
                usual = f"{found['usual_hosts']:,} of {kind['hosts']:,} {kind['kind']}: {_cut(found['usual'])}"
            for group in found["differing"]:
                yield fold(group["hosts"]), f"{ITEMS[item]} {_cut(group['value'])} ({usual})"


def _section(title: str, rows: list[tuple[str, str]], colour: str) -> Iterator[tuple[str, str]]:
    """Rows of hosts and what is said of them, in columns."""
    width = min(24, max((len(hosts) for hosts, _text in rows[:MOST_LINES]), default=0))
    for hosts, text in rows[:MOST_LINES]:
        yield f"  {title:<8} {hosts:<{width}}  {text}", colour
    if len(rows) > MOST_LINES:
        yield f"  {title:<8} {len(rows) - MOST_LINES:,} more, see the report", colour


def _common(kind: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the hosts of a kind have: absent things are left out, they are no news."""
    count = kind["hosts"]
    yield f"{kind['kind']}, {count:,} {'host' if count == 1 else 'hosts'}", "usual"
    width = max(map(len, ITEMS.values()))
    for item, found in kind["items"].items():
        if found["usual"] not in {None, NONE}:
            share = "" if found["usual_hosts"] == count else f"  ({found['usual_hosts']:,} of {count:,})"
            yield f"  {ITEMS[item]:<{width}}  {_cut(found['usual'])}{share}", "usual"


def lines(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The table, line by line, each with its colour: clean, problem, drift, absent or usual."""
    yield f"audit: {report['summary']}", "clean" if report["verdict"] == "clean" else "drift"
    problems = [(fold(problem["hosts"]), _cut(describe(problem))) for problem in report["health"]]
    yield from _section("problem", problems, "problem")
    yield from _section("differs", list(_differences(report["kinds"])), "drift")
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in report["absent"]:
        reasons[one["reason"]].append(one["host"])
    yield from _section("absent", [(fold(hosts), _cut(reason)) for reason, hosts in reasons.items()], "absent")
    if report["ignored"]["problems"]:
        yield f"  ignored  {report['ignored']['problems']:,} problems, by audit_ignore", "usual"
    for kind in report["kinds"]:
        yield from _common(kind)
