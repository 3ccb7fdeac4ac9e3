# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots of a report as inline SVG: lines over a number, and stacked bars. Private to this collection."""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 240, 64, 16, 16, 36
ROW, MOST_BARS, LABEL = 18, 64, 170
COLOURS = ("var(--curve)", "var(--warn)", "var(--bad)", "var(--good)", "var(--held)")
STYLE = """
svg .line{fill:none;stroke-width:2}
svg .line.other{stroke-dasharray:6 4}
"""


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
    return isinstance(values, list) and len(values) == count and all(isinstance(v, (int, float)) for v in values)


def draw(plot: dict[str, Any]) -> str:
    return lines(plot) if plot["kind"] == "lines" else bars(plot)


def figure(title: str, legend: list[str], height: float, parts: list[str]) -> str:
    """`legend`: names in the order of COLOURS."""
    keys = " ".join(
        f'<span style="color:{COLOURS[number % len(COLOURS)]}">&#9632;</span> {escape(name)}'
        for number, name in enumerate(legend)
    )
    name = escape(title)
    return (
        f'<figure><figcaption class="soft">{name} {keys}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" aria-label="{name}">{"".join(parts)}</svg>'
        "</figure>"
    )


def lines(plot: dict[str, Any]) -> str:
    """Lines from zero; the first one has dots, the others are dashed. A line of one point is a dot."""
    points = [point for series in plot["series"].values() for point in series]
    if not points:
        return ""
    right, top = max(x for x, _y in points) or 1, max(y for _x, y in points) or 1

    def place(x: float, y: float) -> str:
        across = LEFT + x / right * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f},{HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP):.1f}"

    parts = [f'<line class="axis" x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - RIGHT}" y2="{HEIGHT - BOTTOM}"/>']
    for share in (0.5, 1):
        y = float(place(0, share * top).partition(",")[2])
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{share * top:.4g}</text>')
    for number, series in enumerate(plot["series"].values()):
        colour, kind = COLOURS[number % len(COLOURS)], "line other" if number else "line"
        path = " ".join(place(x, y) for x, y in series)
        parts.append(f'<polyline class="{kind}" stroke="{colour}" points="{path}"/>')
        for x, y in series if number == 0 else []:
            across, _comma, down = place(x, y).partition(",")
            parts.append(
                f'<circle r="3" fill="{colour}" cx="{across}" cy="{down}"><title>{x:g}: {y:.4g}</title></circle>'
            )
            parts.append(f'<text x="{across}" y="{HEIGHT - 14}" text-anchor="middle">{x:g}</text>')
    return figure(plot["title"], list(plot["series"]), HEIGHT, parts)


def bars(plot: dict[str, Any]) -> str:
    """Stacked bars, one a row, the longest ones where there are many."""
    rows = plot["bars"]
    longest = max((sum(row[1:]) for row in rows), default=0)
    if not longest:
        return ""
    title = plot["title"]
    if len(rows) > MOST_BARS:
        title = f"{title} (the longest {MOST_BARS} of {len(rows)})"
        rows = sorted(rows, key=lambda row: -sum(row[1:]))[:MOST_BARS]
    parts = []
    for number, (name, *values) in enumerate(rows):
        y, x = TOP + ROW * number, float(LABEL)
        parts.append(f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(str(name))}</text>')
        for part, (what, value) in enumerate(zip(plot["parts"], values)):
            wide = value / longest * (WIDTH - LABEL - RIGHT - 48)
            tip = f"<title>{escape(str(name))}: {escape(what)} {value:.4g}</title>"
            box = f'x="{x:.1f}" y="{y}" width="{max(wide, 0):.1f}" height="{ROW - 4}"'
            parts.append(f'<rect {box} fill="{COLOURS[part % len(COLOURS)]}">{tip}</rect>')
            x += max(wide, 0)
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 12}">{sum(values):.4g}</text>')
    return figure(title, plot["parts"], 2 * TOP + ROW * len(rows), parts)
