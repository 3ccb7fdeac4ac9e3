# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drawings of the gate's page: inline SVG in the page's own colours, one file, light, dark and printed."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any, Optional

from ._report_html import NONE

STYLE = """
figure{margin:1rem 0}
svg{max-width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .mark{fill:var(--paper);font-weight:700;pointer-events:none}
svg .axis{stroke:var(--line)}
svg .curve{stroke:var(--curve);fill:none;stroke-width:2}
svg .dot{fill:var(--curve)}
svg .limit{stroke:var(--good);stroke-dasharray:6 4}
svg .good{fill:var(--good)}
svg .bad{fill:var(--bad)}
summary{cursor:pointer;color:var(--soft);margin:.5rem 0}
svg .floor{stroke:var(--bad);stroke-dasharray:2 3}
"""
MOST = 64  # rows of a heat map that a page can show
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 64, 40, 16, 16


def number(value: Optional[float]) -> str:
    return NONE if value is None else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def size(value: Optional[int]) -> str:
    if not value:
        return NONE
    power = min(int(math.log(value, 1024)), 4)
    return f"{value / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def where(result: dict[str, Any]) -> str:
    names = result["nodes"]
    text = ", ".join(names) if len(names) <= 4 else f"{len(names)} nodes"
    if result.get("rail"):
        return f"{text}, {result['rail']} alone"
    return f"{text}, GPUs {'-'.join(map(str, result['devices']))}" if result.get("devices") else text


def curve(result: dict[str, Any]) -> str:
    """Bus bandwidth over message size, with the expected figure and the floor, as inline SVG."""
    points = [(point["size"], point["busbw"]) for point in result["curve"] if point["busbw"] is not None]
    if len(points) < 2:
        return ""
    limits = [value for value in (result["expected_gbps"], result["floor_gbps"]) if value]
    top = 1.08 * max([busbw for _size, busbw in points] + limits)
    low, high = math.log2(points[0][0]), math.log2(points[-1][0])

    def x(value: float) -> float:
        return float(LEFT + (math.log2(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT))

    def y(value: float) -> float:
        return float(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP))

    parts = [f'<line class="axis" x1="{LEFT}" y1="{y(0):.0f}" x2="{WIDTH - RIGHT}" y2="{y(0):.0f}"/>']
    for share in (0, 0.5, 1):
        value = share * top / 1.08
        parts.append(
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.0f}" text-anchor="end">{number(value) if value else 0}</text>'
        )
    step = max(1, len(points) // 6)
    for bytes_, _busbw in points[::step]:
        parts.append(f'<text x="{x(bytes_):.0f}" y="{HEIGHT - 16}" text-anchor="middle">{size(bytes_)}</text>')
    for value, kind, text in ((result["expected_gbps"], "limit", "expected"), (result["floor_gbps"], "floor", "floor")):
        if value:
            parts.append(
                f'<line class="{kind}" x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}"/>'
            )
            below = 14 if kind == "floor" else -4
            parts.append(f'<text x="{LEFT + 4}" y="{y(value) + below:.0f}">{text} {number(value)}</text>')
    line = " ".join(f"{x(bytes_):.1f},{y(busbw):.1f}" for bytes_, busbw in points)
    parts.append(f'<polyline class="curve" points="{line}"/>')
    parts += [f'<circle class="dot" r="3" cx="{x(bytes_):.1f}" cy="{y(busbw):.1f}"/>' for bytes_, busbw in points]
    title = escape(f"{result['collective']} on {where(result)}: GB/s by message size")
    return (
        f'<figure><figcaption class="soft">{title}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{title}">{"".join(parts)}</svg>'
        "</figure>"
    )


def trend(test: str, runs: list[dict[str, Any]], now: Optional[float], good: bool) -> str:
    """What earlier passing runs reached, oldest first, their median, and this run as the last dot."""
    points = [(str(run["finished"]), float(run["gbps"])) for run in runs]
    if not points or len(points) + (now is not None) < 2:
        return ""
    values = sorted(gbps for _when, gbps in points)
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    every = points + ([("this run", now)] if now is not None else [])
    height, top = 150, 1.1 * max(gbps for _when, gbps in every)

    def x(index: int) -> float:
        return LEFT + 12 + index * (WIDTH - LEFT - RIGHT - 40) / max(1, len(every) - 1)

    def y(gbps: float) -> float:
        return height - 34 - gbps / top * (height - 34 - TOP)

    parts = [f'<line class="axis" x1="{LEFT}" y1="{y(0):.0f}" x2="{WIDTH - RIGHT}" y2="{y(0):.0f}"/>']
    parts.append(
        f'<line class="limit" x1="{LEFT}" y1="{y(middle):.1f}" x2="{WIDTH - RIGHT}" y2="{y(middle):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(middle) + 4:.0f}" text-anchor="end">{number(middle)}</text>'
        f'<text x="{LEFT - 8}" y="{y(0) + 4:.0f}" text-anchor="end">0</text>'
    )
    line = " ".join(f"{x(index):.1f},{y(gbps):.1f}" for index, (_when, gbps) in enumerate(every))
    parts.append(f'<polyline class="curve" points="{line}"/>')
    for index, (when, gbps) in enumerate(every):
        kind = "dot" if when != "this run" else "good" if good else "bad"
        title = f"<title>{escape(when)}: {number(gbps)} GB/s</title>"
        size_ = 3 if kind == "dot" else 5
        parts.append(f'<circle class="{kind}" r="{size_}" cx="{x(index):.1f}" cy="{y(gbps):.1f}">{title}</circle>')
    parts.append(f'<text x="{x(0):.0f}" y="{height - 14}">{escape(every[0][0][:10])}</text>')
    last = every[-1][0][:10] if now is None else "this run"
    parts.append(f'<text x="{x(len(every) - 1):.0f}" y="{height - 14}" text-anchor="end">{escape(last)}</text>')
    title = escape(f"{test}: GB/s of {len(points)} earlier passing runs, their median dashed")
    return (
        f'<figure><figcaption class="soft">{title}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-label="{title}">{"".join(parts)}</svg>'
        "</figure>"
    )


def heat_map(stage: dict[str, Any]) -> str:
    """Pairs of the isolation as a grid: green good, red bad, with GB/s as title of each cell."""
    pairs: dict[tuple[str, str], dict[str, Any]] = {}
    for result in stage["results"] if stage["name"] == "isolation" else []:
        ends = (
            [f"{result['nodes'][0]} GPU {gpu}" for gpu in result["devices"]] if result["devices"] else result["nodes"]
        )
        if len(ends) == 2 and not result.get("rail"):
            pairs[(ends[0], ends[1])] = result
    names = list(dict.fromkeys(sorted((end for pair in pairs for end in pair), key=_natural)))
    if len(names) > MOST:  # of a large fleet, those that were in a bad pair
        bad = [pair for pair, result in pairs.items() if result["status"] != "pass"]
        names = list(dict.fromkeys(sorted((end for pair in bad for end in pair), key=_natural)))
    if not 2 < len(names) <= MOST:
        return ""
    cell, left = 22, 8 * max(len(name) for name in names) + 12
    side = left + cell * len(names)
    parts = []
    for row, name in enumerate(names):
        y = left + cell * row
        parts.append(f'<text x="{left - 6}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        turn = f'transform="rotate(-90 {y + 15} {left - 6})"'
        parts.append(f'<text x="{y + 15}" y="{left - 6}" {turn}>{escape(name)}</text>')
        for column, other in enumerate(names):
            result = pairs.get((name, other)) or pairs.get((other, name))
            if result is not None:
                kind = "good" if result["status"] == "pass" else "bad"
                title = escape(f"{name} and {other}: {result['reason']}")
                place = f'x="{left + cell * column + 1}" y="{y + 1}" width="{cell - 2}" height="{cell - 2}"'
                parts.append(f'<rect class="{kind}" {place}><title>{title}</title></rect>')
                if kind == "bad":  # not by colour alone
                    centre = f'x="{left + cell * column + cell // 2}" y="{y + 16}" text-anchor="middle"'
                    parts.append(f'<text class="mark" {centre}>\u00d7</text>')
    return (
        '<figure><figcaption class="soft">Pairs: red with a cross where below the floor or broken, green where good, '
        "empty where not run</figcaption>"
        f'<svg viewBox="0 0 {side} {side}" width="{side}" role="img" aria-label="Pairs">{"".join(parts)}</svg></figure>'
    )


def _natural(name: str) -> list[Any]:
    """n10 after n9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
