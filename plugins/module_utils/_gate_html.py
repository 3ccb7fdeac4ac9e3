# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's report for people: one self-contained page, verdict first, nothing loaded from elsewhere, no script."""

from __future__ import annotations

from html import escape
from typing import Any, Optional

from . import _gate_counters as counting
from . import _gate_transport as transport
from . import _report_chart, _report_plot
from . import _report_html as html
from ._gate_charts import curves, heat_maps, number, size, trend, where
from ._gate_report import figures
from ._report_html import NONE

STYLE = _report_chart.STYLE + "summary{cursor:pointer;color:var(--soft);margin:.5rem 0}"
TITLES = {
    "pass": "Pass: the cluster reaches what its hardware allows",
    "fail": "Fail: the cluster is slower or less correct than its hardware allows",
    "blocked": "Blocked: nothing was judged",
    "unstable": "Unstable: the figures vary too much to be judged",
}
TONES = {"pass": "--good", "fail": "--bad", "blocked": "--held", "unstable": "--warn"}
KINDS = {"node": "node", "gpu": "GPU", "nic": "NIC", "path": "path"}
STAGES = {
    "preflight": "Before any measurement",
    "nodes": "Every node alone",
    "cluster": "All nodes together",
    "isolation": "Search for the guilty part",
}
WORDS = """<h2>How to read this</h2><p class="soft">GB/s are bus bandwidth as nccl-tests defines it, of the largest
message size: what each GPU's link carries, whatever the number of GPUs; the median of several launches.
<b>Expected</b> is derived from the hardware that the nodes report, in the words above; <b>floor</b> is the share of it
that must be reached; <b>varies</b> is the standard deviation of the launches over their mean. <b>blocked</b>: something
that makes figures worthless was found first. <b>unstable</b>: the launches differ too much to be judged. What every
launch printed is in the folder logs beside this page, all figures are in acceptance.json.</p>"""


def _measurements(results: list[dict[str, Any]]) -> str:
    numbers = [(title, "n") for title in ("Size", "GB/s", "Expected", "Floor", "Varies")]
    head = [("Where", ""), ("Collective", ""), *numbers, ("Result", ""), ("Why", "")]
    rows = [
        [
            escape(where(result)),
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
            escape(where(result)),
            escape(result["check"]),
            escape("; ".join(_figure(figure) for figure in result["figures"])) or NONE,
            f'<span class="{result["status"]}">{result["status"]}</span>',
            escape(result["reason"]),
        ]
        for result in sorted(stage["results"], key=lambda result: result["status"] in ("pass", "skipped"))[:500]
    ]
    head = [("Where", ""), ("Check", ""), ("Figures", ""), ("Result", ""), ("Why", "")]
    plots = "".join(_report_plot.draw(plot) for plot in stage.get("plots", []))
    return f"<h2>{title}</h2>{html.table(head, rows)}{plots}"


def _software(stage: dict[str, Any]) -> str:
    """Releases that took part: several of them are worth seeing."""
    releases = sorted({result.get("software") or "" for result in stage["results"]} - {""})
    return f" of {'; '.join(releases[:3])}" if releases else ""


def _stage(stage: dict[str, Any], nodes: list[str]) -> str:
    """`nodes` are all that the gate is about."""
    out = [name for name in nodes if name not in stage["nodes"]] if stage["name"] == "cluster" else []
    title = escape(stage.get("title") or STAGES.get(stage["name"], stage["name"]))
    if stage["results"] and "check" in stage["results"][0]:
        return _checks(stage, title)
    if stage["name"] == "preflight":
        bad = [result for result in stage["results"] if result["status"] != "pass"]
        ready = f"<p>{len(stage['results']) - len(bad)} of {len(stage['results'])} nodes are ready.</p>"
        return f"<h2>{title}</h2>{ready}"
    shown = sorted(stage["results"], key=lambda result: result["status"] == "pass")[:500]
    bad = [result for result in shown if result["status"] != "pass"]
    good = shown[len(bad) :]
    more = f"<p class='soft'>{len(stage['results']) - len(shown)} more are in acceptance.json.</p>"
    if len(good) > 16 or (bad and stage["name"] == "isolation"):
        table = _measurements(bad) if bad else ""
        if good:
            table += f"<details><summary>{len(good)} that passed</summary>{_measurements(good)}</details>"
    else:
        table = _measurements(shown)
    table += more if len(stage["results"]) > len(shown) else ""
    why = next((result["expected_why"] for result in stage["results"]), "")
    without = f"<p>Without {escape(', '.join(out[:8]))}, which failed alone.</p>" if out else ""
    text = (
        f"<p class='soft'>{stage['launches']} launches{escape(_software(stage))}. Expected: {escape(why)}.</p>"
        if stage["name"] != "isolation"
        else f"<p class='soft'>{stage['launches']} launches in {stage['rounds']} rounds.</p>"
    )
    ways: dict[str, int] = next((result["ways"] for result in stage["results"] if result.get("ways")), {})
    if ways:
        text += f"<p class='soft'>NCCL's own log: {escape(transport.words(ways))}.</p>"
    drawn = [*bad[:3], *good[: 1 if stage["name"] == "nodes" else 4]] if stage["name"] != "isolation" else []
    collectives = dict.fromkeys(result["collective"] for result in drawn)
    charts = "".join(curves([one for one in drawn if one["collective"] == name]) for name in collectives)
    return f"<h2>{title}</h2>{without}{text}{heat_maps(stage)}{table}{charts}"


def _counters(moves: list[dict[str, Any]]) -> str:
    if not moves:
        return ""
    rows = [[escape(entry["host"]), escape(counting.words(entry))] for entry in moves[:200]]
    return "<h2>Counters that grew meanwhile</h2>" + html.table([("Host", ""), ("What", "")], rows)


def _baseline(report: dict[str, Any]) -> str:
    """What earlier passing runs of the same hardware and software reached, and their trend up to this run."""
    values = report["baseline"].get("values") or {}
    title = "Earlier passing runs of the same hardware and software"
    if not values:
        none = "No baseline: none is on record, and those of other hardware, software or settings do not count."
        return f"<h2>{title}</h2><p class='soft'>{none}</p>" if report["baseline"].get("key") else ""
    now = figures(report["stages"])
    head = [("Test", ""), ("Median of passing runs, GB/s", "n"), ("This run", "n"), ("Change", "n")]
    rows = []
    for test, gbps in sorted(values.items()):
        change = f"{now[test] / gbps - 1:+.1%}" if test in now and gbps else NONE
        rows.append([escape(test), number(gbps), number(now.get(test)), change])
    history = report["baseline"].get("history") or {}
    good = report["verdict"] == "pass"
    drawn = "".join(trend(test, runs, now.get(test), good) for test, runs in sorted(history.items()))
    return f"<h2>{title}</h2>{html.table(head, rows)}{drawn}"


def _compared(compared: Optional[dict[str, Any]]) -> str:
    if not compared:
        return ""
    text = f"{compared['path']}, {compared['finished']}, verdict {compared['verdict']}"
    for key, what in (("missing", "not measured this time"), ("added", "not measured then")):
        if compared[key]:
            more = f" and {len(compared[key]) - 8} more" if len(compared[key]) > 8 else ""
            text += f"; {what}: {', '.join(compared[key][:8])}{more}"
    rows = [
        [
            escape(one["test"]),
            number(one["before"]),
            number(one["after"]),
            NONE if one["change"] is None else f"{one['change']:+.1%}",
        ]
        for one in compared["tests"][:200]
    ]
    head = [("Test", ""), ("Then", "n"), ("Now", "n"), ("Change", "n")]
    return f"<h2>Compared with another run</h2><p class='soft'>{escape(text)}.</p>" + html.table(head, rows)


def _part(culprit: dict[str, Any]) -> str:
    """A guilty part in a few words: GPU 5 of n3."""
    host, device = culprit["host"], culprit["device"]
    if culprit["kind"] == "gpu":
        return f"GPU {device} of {host}"
    if culprit["kind"] == "nic":
        return f"NIC {device} of {host}"
    if culprit["kind"] == "path":
        return f"the path between {host}" + (f" over {device}" if device else "")
    return str(host)


def _title(report: dict[str, Any]) -> str:
    """The verdict with the guilty parts' names, or what kept it from being one."""
    guilty = [_part(culprit) for culprit in report["culprits"]]
    if report["verdict"] != "fail" or not guilty:
        return TITLES[report["verdict"]]
    if len(guilty) == 1:
        return f"Fail: {guilty[0]} is at fault"
    last = f"{len(guilty) - 3} more" if len(guilty) > 3 else guilty.pop()
    return f"Fail: {', '.join(guilty[:3])} and {last} are at fault"


def _unmeasured(report: dict[str, Any]) -> str:
    """Why a stage that a reader looks for is not there."""
    names = [stage["name"] for stage in report["stages"]]
    if "nodes" not in names or "cluster" in names:
        return ""
    nodes = next(stage for stage in report["stages"] if stage["name"] == "nodes")
    if len(nodes["nodes"]) < 2:
        return ""
    failed = any(result["status"] == "fail" for result in nodes["results"])
    why = "fewer than two are good alone" if failed else "it was not asked for"
    return f"<p class='soft'>All nodes together were not measured, because {why}.</p>"


def _when(report: dict[str, Any]) -> str:
    """Of what and when this is, in one line."""
    nodes = {name for stage in report["stages"] for name in stage["nodes"]}
    day, _t, began = report["started"].rstrip("Z").partition("T")
    until = report["finished"].rstrip("Z").partition("T")
    ended = until[2] if until[0] == day else f"{until[0]} {until[2]}"
    return f"Cluster acceptance \u00b7 {len(nodes)} node{'s' * (len(nodes) != 1)} \u00b7 {day} {began} to {ended} UTC"


def page(report: dict[str, Any]) -> str:
    """The whole HTML document."""
    verdict = report["verdict"]
    expected = report["expected"]
    note = f'<p class="note">{escape(report["note"])}</p>' if report["note"] else ""
    action = f"<p><b>What to do:</b> {escape(report['next_action'])}</p>"
    if report.get("drained"):
        action += f"<p><b>Drained in Slurm:</b> {escape(', '.join(report['drained']))}</p>"
    parts = [html.verdict(TONES[verdict], _title(report), action) + note]
    if report["culprits"]:
        rows = [
            [KINDS[one["kind"]], escape(one["host"]), escape(one["device"]), escape(one["evidence"])]
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
    nodes: list[str] = next((stage["nodes"] for stage in report["stages"] if stage["name"] == "preflight"), [])
    parts += [_stage(stage, nodes) for stage in report["stages"]]
    parts.append(_unmeasured(report))
    parts.append(_counters(report.get("counters") or []))
    parts += [_baseline(report), _compared(report.get("compared"))]
    parts.append(WORDS)
    if not _report_chart.available():
        parts.append(f'<p class="soft">{_report_chart.MISSING}</p>')
    return html.document(f"Acceptance: {verdict}", _when(report), "".join(parts), STYLE)
