# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit as a page for people: the verdict, what to look at, then everything. Private to this collection."""

from __future__ import annotations

from html import escape
from typing import Any

from . import _report_html as html
from ._audit_look import ITEMS, NONE
from ._audit_text import fold

STYLE = """
td.hosts{overflow-wrap:anywhere;min-width:8rem}
details{margin:1rem 0}
summary{cursor:pointer;font-weight:600}
details table{font-size:.85rem}
details td{white-space:nowrap}
"""
NAMES = 40  # names or ranges in a cell


def _hosts(names: list[str]) -> str:
    return escape(fold(names, NAMES))


def _number(hosts: list[str]) -> str:
    return f"{len(hosts):,}"


def _section(title: str, head: list[tuple[str, str]], rows: list[list[str]], note: str = "") -> str:
    text = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f"<h2>{escape(title)}</h2>{text}{html.table(head, rows)}" if rows else ""


def _health(report: dict[str, Any]) -> str:
    rows = [
        [
            _hosts(problem["hosts"]),
            f'<span class="fail">{escape(problem["code"])}</span>',
            escape(problem["device"] or html.NONE),
            escape(problem["detail"]),
        ]
        for problem in report["health"]
    ]
    return _section("Problems", [("Hosts", "hosts"), ("Problem", ""), ("Device", ""), ("What was seen", "")], rows)


def _drift(report: dict[str, Any]) -> str:
    rows = []
    for kind in report["kinds"]:
        for item, found in kind["items"].items():
            for index, group in enumerate(found["differing"]):
                if found["usual"] is None:
                    usual = '<span class="unstable">no majority</span>'
                else:
                    usual = f"{escape(found['usual'])} <span class='soft'>({found['usual_hosts']:,})</span>"
                first = [escape(ITEMS[item]), escape(kind["kind"]), usual] if index == 0 else ["", "", ""]
                rows.append([*first, escape(group["value"]), _number(group["hosts"]), _hosts(group["hosts"])])
    head = [("Item", ""), ("Compared within", ""), ("Usual", ""), ("Differs", ""), ("Hosts", "n"), ("Which", "hosts")]
    return _section("Who differs from the majority", head, rows)


def _absent(report: dict[str, Any]) -> str:
    rows = [
        [escape(one["host"]), "unreachable" if one["unreachable"] else "not audited", escape(one["reason"])]
        for one in report["absent"]
    ]
    return _section("Hosts without an answer", [("Host", "hosts"), ("State", ""), ("Reason", "")], rows)


def _usual(kind: dict[str, Any]) -> str:
    rows = []
    for item, found in kind["items"].items():
        if found["usual"] == NONE and not found["unknown"]:
            continue
        value = '<span class="soft">differs</span>' if found["usual"] is None else escape(found["usual"])
        share = f"{found['usual_hosts']:,} of {kind['hosts']:,}" if found["usual"] is not None else html.NONE
        rows.append([escape(ITEMS[item]), value, share, _hosts(found["unknown"]) or html.NONE])
    head = [("Item", ""), ("What most have", ""), ("Hosts", "n")]
    if any(found["unknown"] for found in kind["items"].values()):
        head.append(("Unknown on", "hosts"))  # rows are as wide as the head
    return _section(f"{kind['kind']}: versions", head, rows)


def _everyone(kind: dict[str, Any], report: dict[str, Any]) -> str:
    """Every host with the items in which not all are equal; folded away, for a fleet has many."""
    mine = {name: host for name, host in report["hosts"].items() if host["kind"] == kind["kind"]}
    shown = [item for item, found in kind["items"].items() if found["differing"] or found["unknown"]]
    if not shown and not any(name in mine for problem in report["health"] for name in problem["hosts"]):
        return ""
    usual = {item: kind["items"][item]["usual"] for item in shown}
    rows = []
    for name, host in mine.items():
        cells = []
        for item in shown:
            text = host["versions"][item]
            shade = "soft" if text is None else "" if text == usual[item] else "unstable"
            cells.append(f'<span class="{shade}">{escape("unknown" if text is None else text)}</span>')
        count = sum(not problem["ignored"] for problem in host["problems"])
        rows.append([escape(name), str(count or html.NONE), *cells])
    head = [("Host", ""), ("Problems", "n"), *((ITEMS[item], "") for item in shown)]
    title = f"Every host of {kind['kind']} ({kind['hosts']:,}), where not all are equal"
    return f"<details><summary>{escape(title)}</summary>{html.table(head, rows)}</details>"


def _title(report: dict[str, Any]) -> tuple[str, str]:
    counts = report["counts"]
    if counts["unhealthy"]:
        return "--bad", "Hosts have problems" if counts["unhealthy"] > 1 else "A host has problems"
    if counts["absent"]:
        return "--bad", "Not every host gave an answer"
    if counts["drift"]:
        return "--warn", "Hosts differ from each other"
    return "--good", "Clean: no problems, no drift"


def page(report: dict[str, Any]) -> str:
    """The whole HTML document."""
    tone, title = _title(report)
    ignored = report["ignored"]
    parts = [
        html.verdict(tone, title, f"<p>{escape(report['summary'])}</p>"),
        _health(report),
        _absent(report),
        _drift(report),
        *(_usual(kind) for kind in report["kinds"]),
        *(_everyone(kind, report) for kind in report["kinds"]),
    ]
    if ignored["words"]:
        words = escape(", ".join(ignored["words"]))
        parts.append(f'<p class="soft">Not judged (audit_ignore): {words}; {ignored["problems"]:,} problems.</p>')
    parts.append(
        f'<p class="soft">{escape(report["made"])}. The same for machines is in audit.json beside this page.</p>'
    )
    return html.document(f"Audit: {report['verdict']}", "Fleet audit", "".join(parts), STYLE)
