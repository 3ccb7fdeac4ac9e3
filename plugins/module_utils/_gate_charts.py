# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts of the gate's page: bandwidth over message size, trend of passing runs, pairs as a heat map."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from typing import Any, Optional

from ._report_chart import COLOURS, WIDTH, Sheet, chart
from ._report_html import NONE

TONES = {"fail": "bad", "unstable": "warn"}
DASHES, MARKS = ("-", "--", ":", "-."), "\u2501\u254d\u2509\u2505"  # of lines, and what they look like in words
MOST = 64  # rows of a heat map that a page can show
FEW = 12  # rows up to which its cells hold their figures
MAPS = 6  # heat maps of nodes that a page can show
SHARES = (0.5, 0.75, 0.9, 1.0)  # of the expected figure, or of the best pair: where the colours of a heat map change
CLASSES = ("below 50 %", "50 to 75 %", "75 to 90 %", "90 to 100 %", "100 % and more")


def number(value: Optional[float]) -> str:
    return NONE if value is None else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def size(value: Optional[int]) -> str:
    if not value:
        return NONE
    power = min(int(math.log(value, 1024)), 4)
    return f"{value / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def where(result: dict[str, Any]) -> str:
    names = result["nodes"]
    text = ", ".join(names) if len(names) <= 4 else f"{len(names)}\u00a0nodes"
    if result.get("rail"):
        return f"{text}, {result['rail']} alone"
    return f"{text}, GPUs {'-'.join(map(str, result['devices']))}" if result.get("devices") else text


def curves(results: list[dict[str, Any]]) -> str:
    """Bus bandwidth over message size of results of one collective, against what was expected and the floor."""
    lines = [(one, [(p["size"], p["busbw"]) for p in one["curve"] if p["busbw"] is not None]) for one in results]
    lines = [(one, points) for one, points in lines if len(points) > 1]
    if not lines:
        return ""
    limits = lines[0][0]

    def paint(sheet: Sheet) -> None:
        axes = sheet.axes
        for place, (one, points) in enumerate(lines):
            style = {"color": COLOURS[TONES.get(one["status"], "curve")], "linestyle": DASHES[place % 4]}
            axes.plot(*zip(*points), marker="o", markersize=5, **style)
        sizes = sorted({bytes_ for _one, points in lines for bytes_, _busbw in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes[:: max(1, len(sizes) // 6)], [size(s) for s in sizes[:: max(1, len(sizes) // 6)]])
        axes.minorticks_off()
        _limit(sheet, limits["expected_gbps"], "expected", "good", 4)
        _limit(sheet, limits["floor_gbps"], "floor", "warn", -14)
        highest = max([busbw for _one, points in lines for _size, busbw in points] + [limits["expected_gbps"] or 0])
        axes.set_ylim(0, 1.12 * highest)
        axes.set_ylabel("GB/s")
        axes.grid(axis="y")

    legend = [(TONES.get(one["status"], "curve"), where(one)) for one, _points in lines]
    marks = "".join(MARKS[place % 4] for place in range(len(lines)))
    return chart(f"{limits['collective']}: bus bandwidth by message size", legend, WIDTH, 280, paint, marks)


def _limit(sheet: Sheet, gbps: Optional[float], name: str, colour: str, above: float) -> None:
    if gbps:
        words = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "color": COLOURS[colour]}
        sheet.axes.axhline(gbps, color=COLOURS[colour], linestyle=(0, (6, 4)), linewidth=1.5)
        sheet.axes.annotate(f"{name} {number(gbps)}", (0, gbps), (4, above), **words)


def trend(test: str, runs: list[dict[str, Any]], now: Optional[float], good: bool) -> str:
    """What earlier passing runs reached, oldest first, their median, and this run as the last dot."""
    points = [(str(run["finished"])[:10], float(run["gbps"])) for run in runs]
    if not points or len(points) + (now is not None) < 2:
        return ""
    middle = statistics.median(gbps for _when, gbps in points)
    every = points + ([("this run", now)] if now is not None else [])

    def paint(sheet: Sheet) -> None:
        axes = sheet.axes
        axes.axhline(middle, color=COLOURS["good"], linestyle=(0, (6, 4)), linewidth=1.5)
        axes.plot([gbps for _when, gbps in every], color=COLOURS["curve"])
        for index, (when, gbps) in enumerate(every):
            kind = "curve" if when != "this run" else "good" if good else "bad"
            (dot,) = axes.plot([index], [gbps], "o", markersize=6 if kind == "curve" else 10, color=COLOURS[kind])
            sheet.tip(dot, f"{when}: {number(gbps)} GB/s")
        shown = sorted({0, len(every) // 2, len(every) - 1})
        axes.set_xticks(shown, [every[index][0] for index in shown])
        values = [gbps for _when, gbps in every]
        room = max(max(values) - min(values), 0.05 * max(values))
        axes.set_ylim(max(0.0, min(values) - room), max(values) + room)
        axes.set_ylabel("GB/s")
        axes.grid(axis="y")

    last = [] if now is None else [("good" if good else "bad", f"this run {number(now)}")]
    legend = [("curve", f"{len(points)} earlier passing runs"), ("good", f"their median {number(middle)}"), *last]
    return chart(f"Trend of {test}", legend, WIDTH, 190, paint)


def heat_maps(stage: dict[str, Any]) -> str:
    """Pairs of the isolation as grids: one of nodes, one for each node whose pairs of GPUs were run."""
    if stage["name"] != "isolation":
        return ""
    pairs: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for result in stage["results"]:
        ends = [f"GPU {gpu}" for gpu in result["devices"]] if result["devices"] else result["nodes"]
        if len(ends) == 2 and not result.get("rail"):
            group = f"GPUs of {result['nodes'][0]}" if result["devices"] else "nodes"
            pairs.setdefault(group, {})[(ends[0], ends[1])] = result
    return "".join(_heat_map(group, found) for group, found in list(pairs.items())[:MAPS])


def _heat_map(group: str, pairs: dict[tuple[str, str], dict[str, Any]]) -> str:
    names = sorted({end for pair in pairs for end in pair}, key=_natural)
    part = ""
    if len(names) > MOST:  # of a large fleet, those that were in a bad pair, as many as a page can show
        bad = [pair for pair, result in pairs.items() if result["status"] != "pass"]
        often = Counter(end for pair in bad for end in pair)
        shown: set[str] = set()
        for pair in sorted(bad, key=lambda pair: -max(often[end] for end in pair)):
            shown |= set(pair) if len(shown | set(pair)) <= MOST else set()
        part = f" ({len(shown)} of {len(names)}, those that failed most often and their partners)"
        names = sorted(shown, key=_natural)
    if len(names) < 3:
        return ""
    best = max((result["median_gbps"] or 0.0 for result in pairs.values()), default=0.0)
    cell = 52 if len(names) <= FEW else 20

    def paint(sheet: Sheet) -> None:
        axes = sheet.axes
        for row, name in enumerate(names):
            for column, other in enumerate(names):
                result = pairs.get((name, other)) or pairs.get((other, name))
                if result is not None:
                    _cell(sheet, column, row, result, best, f"{name} and {other}", len(names) <= FEW)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.set_xticks(range(len(names)), names, rotation=0 if max(map(len, names)) < 7 and cell > 40 else 90)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.spines[:].set_visible(False)

    what = "what was expected" if any(result["expected_gbps"] for result in pairs.values()) else "the best pair"
    title = f"Pairs of {group}{part}: share of {what}; a cross: the pair failed; empty: not run"
    legend = [(f"heat{place}", words) for place, words in enumerate(CLASSES)]
    side = 7.5 * max(map(len, names)) + 24 + cell * len(names)
    return chart(title, legend, side, side, paint)


def _cell(sheet: Sheet, column: int, row: int, result: dict[str, Any], best: float, ends: str, roomy: bool) -> None:
    """One pair: its colour by the share that it reached, a cross where it failed, its figure where there is room."""
    gbps, failed = result["median_gbps"], result["status"] == "fail"
    share = (gbps or 0.0) / (result["expected_gbps"] or best or 1.0)
    colour = COLOURS[f"heat{sum(share >= bound for bound in SHARES)}"]
    (box,) = sheet.axes.bar([column], [0.94], 0.94, row - 0.47, color=colour)
    sheet.tip(box, f"{ends}: {result['reason']}")
    figure = "" if gbps is None else number(gbps)
    words = "\n".join(part for part in ("\u00d7" if failed else "", figure if roomy else "") if part)
    sheet.axes.text(column, row, words, color=COLOURS["ink"], ha="center", va="center", fontsize=11)


def _natural(name: str) -> list[Any]:
    """n10 after n9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
