# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots that other stages bring to the report: lines over a number, and stacked bars. Private to this collection."""

from __future__ import annotations

import math
from typing import Any

from ._report_chart import COLOURS, WIDTH, Sheet, chart

ROW, MOST_BARS = 20, 64
ORDER = ("curve", "warn", "bad", "good", "held")


def problem(plot: dict[str, Any]) -> str:
    """Why a plot cannot be drawn, empty when it can."""
    if plot.get("kind") == "lines":
        series = plot.get("series")
        good = isinstance(series, dict) and all(_numbers(point, 2) for line in series.values() for point in line)
        return "" if good else "series should be dictionaries of points [x, y]"
    if plot.get("kind") == "bars":
        parts, bars = plot.get("parts"), plot.get("bars")
        good = isinstance(parts, list) and isinstance(bars, list)
        good = good and all(isinstance(row, list) and _numbers(row[1:], len(parts or [])) for row in bars or [])
        return "" if good else "bars should be [name, value, …] with a value for each of parts"
    return f"kind is '{plot.get('kind')}', expected lines or bars"


def _numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(v, (int, float)) and math.isfinite(v) for v in values)
    )


def draw(plot: dict[str, Any]) -> str:
    return lines(plot) if plot["kind"] == "lines" else bars(plot)


def _legend(names: list[str]) -> list[tuple[str, str]]:
    return [(ORDER[number % len(ORDER)], name) for number, name in enumerate(names)]


def lines(plot: dict[str, Any]) -> str:
    """Lines from zero; the first one has dots, the others are dashed."""
    series: dict[str, list[list[float]]] = plot["series"]
    if not any(series.values()):
        return ""

    def paint(sheet: Sheet) -> None:
        axes = sheet.axes
        for number, line in enumerate(series.values()):
            across, up = [x for x, _y in line], [y for _x, y in line]
            colour = COLOURS[ORDER[number % len(ORDER)]]
            axes.plot(across, up, color=colour, linestyle="--" if number else "-", marker="" if number else "o")
        first = next(iter(series.values()))
        ticks: list[float] = []
        for x in sorted({x for x, _y in first}, reverse=True):
            if not ticks or ticks[-1] - x > 0.04 * ticks[0]:  # else the words would lie on one another
                ticks.append(x)
        axes.set_xticks(ticks)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")

    marks = "\u2501" + "\u254d" * len(series)
    return chart(plot["title"], _legend(list(series)), WIDTH, 260, paint, marks)


def bars(plot: dict[str, Any]) -> str:
    """Stacked bars, one a row, the longest ones where there are many."""
    rows = plot["bars"]
    if not any(sum(row[1:]) for row in rows):
        return ""
    title = plot["title"]
    if len(rows) > MOST_BARS:
        title = f"{title} (the longest {MOST_BARS} of {len(rows)})"
        rows = sorted(rows, key=lambda row: -sum(row[1:]))[:MOST_BARS]

    def paint(sheet: Sheet) -> None:
        axes, left = sheet.axes, [0.0] * len(rows)
        for part, what in enumerate(plot["parts"]):
            values = [max(0.0, row[part + 1]) for row in rows]
            drawn = axes.barh(range(len(rows)), values, 0.75, left, color=COLOURS[ORDER[part % len(ORDER)]])
            for box, row, value in zip(drawn, rows, values):
                sheet.tip(box, f"{row[0]}: {what} {value:.4g}")
            left = [before + value for before, value in zip(left, values)]
        for place, total in enumerate(left):
            axes.annotate(f"{total:.4g}", (total, place), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(rows)), [str(row[0]) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, 1.08 * max(left))
        axes.tick_params(axis="y", length=0)

    return chart(title, _legend(plot["parts"]), WIDTH, 48 + ROW * len(rows), paint)
