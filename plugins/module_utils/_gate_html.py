# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's report for people: one self-contained page, verdict first, nothing loaded from elsewhere, no script."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any, Optional

from . import _gate_counters as counting
from . import _report_html as html
from ._report_html import NONE

STYLE = """
figure{margin:1rem 0}
svg{max-width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .axis{stroke:var(--line)}
svg .curve{stroke:var(--curve);fill:none;stroke-width:2}
svg .dot{fill:var(--curve)}
svg .limit{stroke:var(--good);stroke-dasharray:6 4}
svg .good{fill:var(--good)}
svg .bad{fill:var(--bad)}
summary{cursor:pointer;color:var(--soft);margin:.5rem 0}
svg .floor{stroke:var(--bad);stroke-dasharray:2 3}
"""
TITLES = {
    "pass": "Pass: the cluster reaches what its hardware allows",
    "fail": "Fail: the cluster is slower or less correct than its hardware allows",
    "blocked": "Blocked: nothing was judged",
    "unstable": "Unstable: the figures vary too much to be judged",
}
TONES = {"pass": "--good", "fail": "--bad", "blocked": "--held", "unstable": "--warn"}
STAGES = {
    "preflight": "Before any measurement",
    "nodes": "Every node alone",
    "cluster": "All nodes together",
    "isolation": "Search for the guilty part",
}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 64, 40, 16, 16


def number(value: Optional[float]) -> str:
    return NONE if value is None else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def size(value: Optional[int]) -> str:
    if not value:
        return NONE
    power = min(int(math.log(value, 1024)), 4)
    return f"{value / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _where(result: dict[str, Any]) -> str:
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
    title = escape(f"{result['collective']} on {_where(result)}: GB/s by message size")
    return (
        f'<figure><figcaption class="soft">{title}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{title}">{"".join(parts)}</svg>'
        "</figure>"
    )


def _measurements(results: list[dict[str, Any]]) -> str:
    numbers = [(title, "n") for title in ("Size", "GB/s", "Expected", "Floor", "Varies")]
    head = [("Where", ""), ("Collective", ""), *numbers, ("Result", ""), ("Why", "")]
    rows = [
        [
            escape(_where(result)),
            escape(result["collective"]),
            size(result["size"]),
            number(result["median_gbps"]),
            number(result["expected_gbps"]),
            number(result["floor_gbps"]),
            NONE if result["cv"] is None else f"{result['cv']:.1%}",
            f'<span class="{result["status"]}">{result["status"]}</span>',
            escape(result["reason"]),
        ]
        for result in results
    ]
    return html.table(head, rows)


def _figure(figure: dict[str, Any]) -> str:
    beside = ", ".join(f"{key} {number(figure[key])}" for key in ("expected", "floor") if key in figure)
    text = f"{figure['name']} {number(figure['value'])} {figure['unit']}".rstrip()
    return f"{text} ({beside})" if beside else text


def _checks(stage: dict[str, Any], title: str) -> str:
    """A stage of checks that are not measurements of nccl-tests: one row each, bad ones first."""
    rows = [
        [
            escape(_where(result)),
            escape(result["check"]),
            escape("; ".join(_figure(figure) for figure in result["figures"])) or NONE,
            f'<span class="{result["status"]}">{result["status"]}</span>',
            escape(result["reason"]),
        ]
        for result in sorted(stage["results"], key=lambda result: result["status"] in ("pass", "skipped"))[:500]
    ]
    head = [("Where", ""), ("Check", ""), ("Figures", ""), ("Result", ""), ("Why", "")]
    return f"<h2>{title}</h2>{html.table(head, rows)}"


def _stage(stage: dict[str, Any]) -> str:
    title = escape(stage.get("title") or STAGES.get(stage["name"], stage["name"]))
    if stage["results"] and "check" in stage["results"][0]:
        return _checks(stage, title)
    if stage["name"] == "preflight":
        bad = [result for result in stage["results"] if result["status"] != "pass"]
        good = f"<p>{len(stage['results']) - len(bad)} of {len(stage['results'])} nodes are ready.</p>"
        return f"<h2>{title}</h2>{good}"
    shown = sorted(stage["results"], key=lambda result: result["status"] == "pass")[:500]
    bad = [result for result in shown if result["status"] != "pass"]
    more = f"<p class='soft'>{len(stage['results']) - len(shown)} more are in acceptance.json.</p>"
    table = _measurements(bad) if bad else ""
    if len(shown) > len(bad):
        good = _measurements(shown[len(bad) :])
        folded = f"<details><summary>{len(shown) - len(bad)} that passed</summary>{good}</details>"
        table += folded if len(shown) - len(bad) > 16 else good
    table += more if len(stage["results"]) > len(shown) else ""
    why = next((result["expected_why"] for result in stage["results"]), "")
    text = (
        f"<p class='soft'>{stage['launches']} launches. Expected: {escape(why)}.</p>"
        if stage["name"] != "isolation"
        else ""
    )
    ways: dict[str, int] = next((result["ways"] for result in stage["results"] if result.get("ways")), {})
    if ways:
        said = ", ".join(f"{way} ({count})" for way, count in list(ways.items())[:8])
        text += f"<p class='soft'>NCCL said: {escape(said)}.</p>"
    drawn = [*bad[:3], *shown[len(bad) : len(bad) + 1]] if stage["name"] != "isolation" else []
    curves = "".join(curve(result) for result in drawn)
    return f"<h2>{title}</h2>{text}{heat_map(stage)}{table}{curves}"


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
    if not 2 < len(names) <= 64:
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
    return (
        f'<figure><figcaption class="soft">Pairs, red where below the floor or broken</figcaption>'
        f'<svg viewBox="0 0 {side} {side}" width="{side}" role="img" aria-label="Pairs">{"".join(parts)}</svg></figure>'
    )


def _natural(name: str) -> list[Any]:
    """n10 after n9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _counters(moves: list[dict[str, Any]]) -> str:
    if not moves:
        return ""
    rows = [[escape(entry["host"]), escape(counting.words(entry))] for entry in moves[:200]]
    return "<h2>Counters that grew meanwhile</h2>" + html.table([("Host", ""), ("What", "")], rows)


def page(report: dict[str, Any]) -> str:
    """The whole HTML document."""
    verdict = report["verdict"]
    expected = report["expected"]
    note = f'<p class="note">{escape(report["note"])}</p>' if report["note"] else ""
    action = f"<p><b>What to do:</b> {escape(report['next_action'])}</p>"
    parts = [html.verdict(TONES[verdict], TITLES[verdict], action) + note]
    if report["culprits"]:
        rows = [
            [escape(one["kind"]), escape(one["host"]), escape(one["device"]), escape(one["evidence"])]
            for one in report["culprits"]
        ]
        parts.append(
            "<h2>Guilty</h2>" + html.table([("Part", ""), ("Host", ""), ("Device", ""), ("Evidence", "")], rows)
        )
    if report["blocked"]:
        rows = [[escape(one["host"] or "all"), escape(one["reason"])] for one in report["blocked"]]
        parts.append("<h2>What blocks the gate</h2>" + html.table([("Host", ""), ("Reason", "")], rows))
    if report["warnings"]:
        parts.append(
            "<h2>Look at</h2><ul>" + "".join(f"<li>{escape(text)}</li>" for text in report["warnings"]) + "</ul>"
        )
    value = "no figure" if expected["value_gbps"] is None else f"{number(expected['value_gbps'])} GB/s bus bandwidth"
    parts.append(f"<h2>What was expected</h2><p><b>{value}</b> of all_reduce: {escape(expected['derivation'])}.</p>")
    parts += [_stage(stage) for stage in report["stages"]]
    parts.append(_counters(report.get("counters") or []))
    baseline = report["baseline"].get("values") or {}
    if baseline:
        rows = [[escape(test), number(gbps)] for test, gbps in sorted(baseline.items())]
        parts.append(
            "<h2>Earlier passing runs of the same parts</h2>" + html.table([("Test", ""), ("Median GB/s", "n")], rows)
        )
    when = f"{escape(report['started'])} to {escape(report['finished'])}"
    parts.append(f'<p class="soft">{when}. Logs are in the folder logs beside this page.</p>')
    return html.document(f"Acceptance: {verdict}", "Cluster acceptance", "".join(parts), STYLE)
