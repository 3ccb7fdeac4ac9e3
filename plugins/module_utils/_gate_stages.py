# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages beside nccl-tests' own in the acceptance report: what other proofs of the same cluster add to it.

A stage is {name, title, nodes, rounds, launches, results}; its results are checks, see `check`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

Report = dict[str, Any]
STATUS = ("fail", "blocked", "unstable", "pass", "skipped")  # worst first
OWN = ("preflight", "nodes", "wire", "cluster", "isolation")
EXPECTED = {"value_gbps": None, "derivation": "bandwidth was not measured in this run"}


def check(
    name: str,
    nodes: list[str],
    status: str,
    reason: str,
    figures: Iterable[dict[str, Any]] = (),
    seconds: Optional[float] = None,
) -> dict[str, Any]:
    """One check of one or several nodes: one row of the page, one test case.

    `figures` are {name, value, unit}, where `expected` and `floor` may stand beside the value. A check that is skipped
    says why and changes no verdict.
    """
    figures = [
        {"name": one["name"], "value": one["value"], "unit": one.get("unit") or "", **_bounds(one)} for one in figures
    ]
    return {"check": name, "nodes": nodes, "status": status, "reason": reason, "figures": figures, "seconds": seconds}


def _bounds(figure: dict[str, Any]) -> dict[str, Any]:
    return {key: figure[key] for key in ("expected", "floor") if figure.get(key) is not None}


def stage(name: str, title: str, results: list[dict[str, Any]], launches: int = 0) -> dict[str, Any]:
    nodes = list(dict.fromkeys(node for result in results for node in result["nodes"]))
    return {"name": name, "title": title, "nodes": nodes, "rounds": 1, "launches": launches, "results": results}


def is_check(result: dict[str, Any]) -> bool:
    return "check" in result


def worst(statuses: Iterable[str]) -> str:
    """The status that counts; `pass` when there is none, `skipped` when all were."""
    found = set(statuses)
    if not found - {"skipped"}:
        return "skipped" if found else "pass"
    return next(status for status in STATUS if status in found)


def empty(started: str) -> Report:
    """A report of a cluster on which the gate has not measured."""
    return {
        "schema_version": 1,
        "started": started,
        "finished": started,
        "verdict": "pass",
        "note": "",
        "expected": dict(EXPECTED),
        "stages": [],
        "culprits": [],
        "blocked": [],
        "baseline": {"key": "", "proof": "", "values": {}},
        "warnings": [],
        "next_action": "Nothing: the cluster may be used.",
    }


def add(
    report: Report,
    added: dict[str, Any],
    finished: str,
    next_action: str = "",
    culprits: Iterable[dict[str, Any]] = (),
    warnings: Iterable[str] = (),
) -> Report:
    """The report with one more stage; a stage of the same name is replaced with all that it brought.

    The verdict becomes the worst of what the gate and the added stages say; the next action is that of the stage that
    decides. What the gate alone said is kept in `gate`.
    """
    own = report.get("gate") or {key: report[key] for key in ("verdict", "next_action")}
    status = worst(result["status"] for result in added["results"])
    bad = next((result for result in added["results"] if result["status"] == status), None)
    if bad and status not in ("pass", "skipped") and not next_action:
        next_action = f"{bad['check']} on {', '.join(bad['nodes'][:4])}: {bad['reason'] or status}"
    brought: dict[str, Any] = {
        "status": status,
        "next_action": next_action,
        "culprits": list(culprits),
        "warnings": list(warnings),
    }
    old: dict[str, Any] = report.get("added", {}).get(added["name"], {})
    extras = {**report.get("added", {}), added["name"]: brought}
    said = [own, *({**one, "verdict": one["status"]} for one in extras.values() if one["status"] != "skipped")]
    verdict = worst(one["verdict"] for one in said)
    action = next(one["next_action"] for one in said if one["verdict"] == verdict)
    return {
        **report,
        "finished": finished,
        "verdict": verdict,
        "stages": [one for one in report["stages"] if one["name"] != added["name"]] + [added],
        "culprits": [one for one in report["culprits"] if one not in old.get("culprits", [])] + brought["culprits"],
        "warnings": [text for text in report["warnings"] if text not in old.get("warnings", [])] + brought["warnings"],
        "next_action": action,
        "gate": own,
        "added": extras,
    }
