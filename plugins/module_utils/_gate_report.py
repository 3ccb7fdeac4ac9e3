# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's report for machines: the JSON document, JUnit for CI systems, Prometheus' text format for dashboards."""

from __future__ import annotations

import re
import statistics
import xml.etree.ElementTree as ET
from datetime import datetime, timezone
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_counters as counting
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_judge as judging
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_verdict as deciding

SCHEMA_VERSION = 1
VERDICTS = ("pass", "fail", "blocked", "unstable")
MEASURED = ("nodes", "cluster")
CONTROL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


def measured(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for stage in stages if stage["name"] in MEASURED for result in stage["results"]]


def judged(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results that decide the verdict: measurements, and checks of what lies below NCCL that have a figure."""
    below = [result for stage in stages if stage["name"] == "wire" for result in stage["results"]]
    return measured(stages) + [result for result in below if result["status"] != "skipped"]


def figures(stages: list[dict[str, Any]]) -> dict[str, float]:
    """What a baseline remembers, by test: the fleet's median of nodes alone, and each collective over all nodes."""
    found: dict[str, list[float]] = {}
    for stage in stages:
        for result in stage["results"] if stage["name"] in MEASURED else []:
            test = "node" if stage["name"] == "nodes" else "cluster"
            test += "" if result["collective"] == "all_reduce" else f"_{result['collective']}"
            if result["median_gbps"]:
                found.setdefault(test, []).append(result["median_gbps"])
    return {test: round(statistics.median(values), 5) for test, values in found.items()}


def warnings(stages: list[dict[str, Any]]) -> list[str]:
    """What passed but should be looked at, each once."""
    found: dict[str, list[str]] = {}
    for stage in stages:
        for result in stage["results"] if stage["name"] in MEASURED else []:
            where = ", ".join(result["nodes"]) if len(result["nodes"]) < 3 else f"{len(result['nodes'])} nodes"
            if "over_limit" in result["flags"]:
                text = (
                    f"{result['collective']}: {result['reason']}: wrong algorithm, or topology other than the facts say"
                )
                found.setdefault(text, []).append(where)
            if "dips" in result["flags"] and "over_limit" not in result["flags"]:
                found.setdefault(f"{result['collective']}: {result['reason']}", []).append(where)
            if "short" in result["flags"]:
                text = (
                    f"{result['collective']} was judged at {result['size']} bytes, it did not go up to nccl_tests_end"
                )
                found.setdefault(text, []).append(where)
            if "contradiction" in result["flags"]:
                found.setdefault(f"{result['collective']}: {result['reason']}", []).append(where)
            if "through_host" in result["flags"]:
                text = "NCCL moved data between GPUs and NICs through the hosts' memory: its log never says GDRDMA"
                found.setdefault(text, []).append(where)
            if "not_judged" in result["flags"] and not result["expected_why"].startswith("one GPU"):
                text = f"bandwidth of {result['collective']} was not judged, only its data: {result['expected_why']}"
                found.setdefault(text, []).append(where)
    alone = {
        result["nodes"][0]: result["median_gbps"] for s in stages if s["name"] == "nodes" for result in s["results"]
    }
    texts = [f"{', '.join(dict.fromkeys(where))}: {text}" for text, where in found.items()]
    slow = judging.outliers({name: value for name, value in alone.items() if value})
    return texts + [f"{name}: {alone[name]:g} GB/s alone, slower than the rest of the fleet" for name in slow]


def restarts(again: list[dict[str, str]]) -> list[str]:
    """Launches that had to be started again because the launcher failed first, each reason once."""
    by_words: dict[str, list[str]] = {}
    for one in again:
        by_words.setdefault(one["words"], []).append(one["name"])
    lines = []
    for words, names in list(by_words.items())[:8]:
        which = ", ".join(dict.fromkeys(names[:3])) + (" and others" if len(set(names)) > 3 else "")
        count = "1 more start was" if len(names) == 1 else f"{len(names)} more starts were"
        lines.append(f"{count} needed ({which}), the launcher failed first: {words}")
    return lines


def document(gate: Any, started: str, finished: str, baseline: dict[str, Any], note: str) -> dict[str, Any]:
    """The report as acceptance.json holds it; `gate` is a Gate that has run. Schema: roles/nccl_tests/files."""
    results = measured(gate.stages)
    outcome = deciding.verdict(gate.blocked, judged(gate.stages) if results else [])
    caution = warnings(gate.stages) + gate.accepted + restarts(gate.restarts) + counting.warnings(gate.counters.moves)
    return {
        "schema_version": SCHEMA_VERSION,
        "started": started,
        "finished": finished,
        "verdict": outcome,
        "note": note,
        "expected": gate.expected(),
        "stages": gate.stages,
        "culprits": gate.culprits if outcome == "fail" else [],
        "blocked": gate.blocked,
        "counters": gate.counters.moves,
        "baseline": baseline,
        "warnings": caution,
        "next_action": deciding.next_action(outcome, gate.blocked, gate.culprits, results, caution),
    }


def _clean(text: str) -> str:
    return CONTROL.sub("?", text)


def _of_checks(stage: dict[str, Any], blocked: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What was looked at before anything is measured, as one result for each node and check."""
    against = {(entry["host"], entry["check"]): entry["reason"] for entry in blocked}
    return [
        {"nodes": [node], "check": check, "status": "blocked" if reason else "pass", "reason": reason}
        for node in stage["nodes"]
        for check in stage["checks"]
        for reason in [against.get((node, check)) or against.get(("", check), "")]
    ]


def junit(report: dict[str, Any]) -> str:
    """One suite a stage, one case for each node and check; what was blocked is skipped, not failed."""
    root = ET.Element("testsuites", name="gpuops acceptance")
    for stage in report["stages"]:
        results = _of_checks(stage, report["blocked"]) if stage.get("checks") else stage["results"]
        count = {
            status: sum(result["status"] == status for result in results)
            for status in ("fail", "blocked", "unstable", "skipped")
        }
        suite = ET.SubElement(
            root,
            "testsuite",
            name=stage["name"],
            tests=str(len(results)),
            failures=str(count["fail"] + count["unstable"]),
            skipped=str(count["blocked"] + count["skipped"]),
            errors="0",
            timestamp=report["started"].rstrip("Z"),
        )
        for result in results:
            where = ",".join(result["nodes"]) if len(result["nodes"]) < 3 else f"{len(result['nodes'])} nodes"
            name = f"{result.get('check') or result.get('collective', 'preflight')} on {where}"
            seconds = result.get("seconds") or sum(one["seconds"] for one in result.get("samples", []))
            attributes = {"classname": f"gate.{stage['name']}", "name": _clean(name), "time": f"{seconds:.2f}"}
            case = ET.SubElement(suite, "testcase", attributes)
            kind = {"fail": "failure", "unstable": "failure", "blocked": "skipped", "skipped": "skipped"}.get(
                result["status"]
            )
            if kind:
                entry = ET.SubElement(case, kind, message=_clean(result["reason"]))
                if kind == "failure":
                    entry.set("type", result["status"])
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _label(text: Any) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def prometheus(report: dict[str, Any]) -> str:
    """Metrics for node exporter's textfile collector; rates in bytes per second."""
    finished = datetime.strptime(report["finished"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    lines = [
        "# HELP gpuops_acceptance_verdict Outcome of the last acceptance gate: 1 for the verdict it gave.",
        "# TYPE gpuops_acceptance_verdict gauge",
        *(f'gpuops_acceptance_verdict{{verdict="{v}"}} {int(v == report["verdict"])}' for v in VERDICTS),
        "# HELP gpuops_acceptance_finished_timestamp_seconds When the last acceptance gate ended.",
        "# TYPE gpuops_acceptance_finished_timestamp_seconds gauge",
        f"gpuops_acceptance_finished_timestamp_seconds {finished:.0f}",
        "# HELP gpuops_acceptance_culprit Parts that the last acceptance gate holds guilty.",
        "# TYPE gpuops_acceptance_culprit gauge",
    ]
    for one in report["culprits"]:
        labels = ",".join(f'{key}="{_label(one[key])}"' for key in ("kind", "host", "device"))
        lines.append(f"gpuops_acceptance_culprit{{{labels}}} 1")
    for metric, key, text in (
        ("busbw", "median_gbps", "Measured bus bandwidth, median of the launches."),
        ("expected_busbw", "expected_gbps", "Bus bandwidth that the hardware should reach."),
    ):
        name = f"gpuops_acceptance_{metric}_bytes_per_second"
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        for stage in report["stages"]:
            for result in stage["results"] if stage["name"] in MEASURED else []:
                if result[key] is None:
                    continue
                host = result["nodes"][0] if stage["name"] == "nodes" else ""
                labels = f'stage="{stage["name"]}",collective="{result["collective"]}",host="{_label(host)}"'
                lines.append(f"{name}{{{labels}}} {result[key] * 1e9:.0f}")
    lines += _checks(report)
    return "\n".join(lines) + "\n"


def _checks(report: dict[str, Any]) -> list[str]:
    """Figures of the stages that are not nccl-tests' own, in the unit that they were given in."""
    name = "gpuops_acceptance_figure"
    lines = [f"# HELP {name} A figure of another check, in the unit of its label.", f"# TYPE {name} gauge"]
    for stage in report["stages"]:
        for result in stage["results"]:
            for figure in result.get("figures", []):
                labels = {"stage": stage["name"], "check": result["check"], "figure": figure["name"]}
                labels |= {"unit": figure["unit"], "host": ",".join(result["nodes"][:8])}
                text = ",".join(f'{key}="{_label(value)}"' for key, value in labels.items())
                lines.append(f"{name}{{{text}}} {figure['value']:g}")
    return lines if len(lines) > 2 else []
