# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's reports: page, JUnit, Prometheus, comparison, baseline and trend."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_compare, _gate_html, _gate_report, _gate_store
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import SCHEMA, Cluster, gate, node


def test_the_page_begins_with_what_and_when_and_the_verdict() -> None:
    page = _gate_html.page(gate(Cluster(nodes={"n2": ("together", 0.6)}), 4))
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page).split("Guilty")[0]
    began = re.search(r"Cluster acceptance \S+ 4 nodes \S+ \d{4}-\d\d-\d\d [\d:]+ to [\d:]+ UTC", words)
    assert began is not None
    assert words.index("Fail: n2 is at fault") > began.end()
    assert "Drain n2 and check its way to the others (NICs, cables, switch ports): alone it is good" in words
    assert "src=" not in page and "href=" not in page.replace('href="#', ""), "nothing is loaded from elsewhere"


def test_starts_that_failed_are_told_once_a_reason() -> None:
    again = [{"name": f"nodes-n{i}-1", "words": "srun: error: no answer"} for i in range(1, 6)]
    lines = _gate_report.restarts([*again, {"name": "cluster-1", "words": "ssh: no route"}])
    assert lines == [
        "5 more starts were needed (nodes-n1-1, nodes-n2-1, nodes-n3-1 and others), the launcher failed first: "
        "srun: error: no answer",
        "1 more start was needed (cluster-1), the launcher failed first: ssh: no route",
    ]


def test_html_escapes_what_it_shows() -> None:
    report = gate(Cluster(probe={"n2": {"missing": "<img src=x>"}}), 2)
    assert "<img" not in _gate_html.page(report)
    assert "&lt;img" in _gate_html.page(report)


def test_junit_and_prometheus() -> None:
    report = gate(Cluster(nodes={"n3/5": ("slow", 0.5)}))
    suites = ET.fromstring(_gate_report.junit(report))
    failed = {case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None}
    assert "all_reduce on n3" in failed
    metrics = _gate_report.prometheus(report)
    assert 'gpuops_acceptance_verdict{verdict="fail"} 1' in metrics
    assert 'gpuops_acceptance_verdict{verdict="pass"} 0' in metrics
    assert 'gpuops_acceptance_culprit{kind="gpu",host="n3",device="5"} 1' in metrics
    assert re.search(
        r'gpuops_acceptance_busbw_bytes_per_second\{stage="nodes",collective="all_reduce",host="n1"\} 4\d{11}\n',
        metrics,
    )


def cases(report: dict[str, Any], stage: str) -> dict[str, str]:
    """JUnit's cases of a stage, and why they were skipped or failed; empty for those that passed."""
    suite = next(one for one in ET.fromstring(_gate_report.junit(report)) if one.get("name") == stage)
    found = {str(case.get("name")): "".join(str(why.get("message")) for why in case) for case in suite}
    assert int(str(suite.get("tests"))) == len(found) == len(list(suite))
    assert int(str(suite.get("skipped"))) == sum(bool(why) for why in found.values())
    return found


def test_junit_has_a_case_for_each_node_and_check() -> None:
    good = cases(gate(Cluster(), 2), "preflight")
    assert set(good.values()) == {""}
    assert {"gpu_facts on n1", "memlock on n1", "same_nccl on n2", "allocation on n2"} <= set(good)
    blocked = cases(gate(Cluster(probe={"n2": {"memlock": "8192"}}), 3), "preflight")
    assert {name for name, why in blocked.items() if why} == {"memlock on n2"}
    assert "8192 KiB" in blocked["memlock on n2"]
    for given in ({"state": "degraded", "problems": ["gpu_lost"]}, {"gpus": 7}):
        facts = cases(gate(Cluster(), {"n1": node("n1"), "n2": node("n2", **given), "n3": node("n3")}), "preflight")
        assert {name.split(" on ")[1] for name, why in facts.items() if why} == {"n2"}
        assert "memlock on n1" not in facts, "what was not looked at is no case"
    busy = cases(gate(Cluster(salloc="busy"), 2), "preflight")
    assert {name for name, why in busy.items() if why} == {"allocation on n1", "allocation on n2"}


def test_a_pass_stays_valid_until_something_changes(tmp_path: Path) -> None:
    store = _gate_store.Store(str(tmp_path))
    report = {**gate(Cluster()), "finished": _gate_store.stamp(1000)}
    _gate_store.write(tmp_path / "acceptance.json", json.dumps(report))
    assert store.proof("p", 7, 2000) is not None
    assert store.proof("other", 7, 2000) is None
    assert store.proof("p", 7, 1000 + 8 * 86400) is None
    _gate_store.write(tmp_path / "acceptance.json", json.dumps({**report, "verdict": "unstable"}))
    assert store.proof("p", 7, 2000) is None
    (tmp_path / "acceptance.json").write_text("{torn", encoding="utf-8")
    assert store.proof("p", 7, 2000) is None


def test_no_baseline_is_said() -> None:
    report = gate(Cluster())
    report["baseline"]["key"] = "kind"
    assert "No baseline: none is on record" in _gate_html.page(report)


def test_data_through_the_hosts_memory_is_a_warning() -> None:
    report = gate(Cluster(ways=["IB"], said=["via NET/IB", "via P2P/CUMEM", "Bootstrap: Using eth0"]))
    assert report["verdict"] == "pass"
    assert "never says GDRDMA" in " ".join(report["warnings"])
    page = _gate_html.page(report)
    assert "network IB; transports NET/IB (8), P2P/CUMEM (8); first contact over eth0" in page
    good = gate(Cluster(ways=["IB"], said=["via NET/IB/GDRDMA"]))
    assert good["warnings"] == []


def test_allocation_that_is_too_long_for_the_partition_is_asked_for_without_a_limit() -> None:
    class Short(Cluster):
        def answer(self, launch: dict[str, Any]) -> dict[str, Any]:
            if launch["command"][0] == "salloc" and any(word.startswith("--time") for word in launch["command"]):
                bad = "salloc: error: Job submit/allocate failed: Requested time limit is invalid"
                return {"rc": 1, "stdout": "", "stderr": bad, "seconds": 0.1, "timed_out": False}
            return super().answer(launch)

    assert gate(Short())["verdict"] == "pass"


def test_trend_of_passing_runs_is_drawn() -> None:
    report = gate(Cluster(nodes={"n2/3": ("slow", 0.5)}), baseline={"node": 479.0, "cluster": 366.0})
    assert "Trend of" not in _gate_html.page(report), "nothing is known of the runs"
    runs = [{"finished": f"2026-11-{day:02d}T03:00:00Z", "gbps": 478.0 + day / 10} for day in range(1, 9)]
    report["baseline"]["history"] = {"node": runs, "cluster": runs[:1]}
    jsonschema.validate(report, SCHEMA)
    drawn = _gate_html.page(report).partition('aria-label="Trend of node"')[2].partition("</svg>")[0]
    dots = re.findall(r"<title>(.*?)</title>", drawn)
    assert len(dots) == 9, "eight runs and this one"
    assert [dots[0], dots[-1].partition(":")[0]] == ["2026-11-01: 478.1 GB/s", "this run"]
    assert "fill: var(--bad)" in drawn, "this run did not pass"
    assert "2026-11-01" in drawn


def test_two_reports_are_compared() -> None:
    old, new = gate(Cluster()), gate(Cluster(nodes={"n2": ("slow", 0.97)}), 3)
    compared = _gate_compare.compare(old, new, "before/acceptance.json")
    new["compared"] = compared
    jsonschema.validate(new, SCHEMA)
    by_test = {one["test"]: one for one in compared["tests"]}
    assert by_test["all_reduce on n2 (GB/s)"]["change"] == pytest.approx(-0.03, abs=0.02)
    assert compared["missing"] == [
        "all_reduce on n4 (GB/s)",
        "all_reduce on 4 nodes (GB/s)",
        "alltoall on 4 nodes (GB/s)",
    ]
    words = _gate_compare.words(compared)
    assert "(pass)" in words[0]
    assert any(line.startswith("all_reduce on n2") for line in words)
    page = _gate_html.page(new)
    assert "Compared with another run" in page
    assert "not measured this time: all_reduce on n4" in page


def test_baseline_is_the_median_of_passing_runs(tmp_path: Path) -> None:
    store = _gate_store.Store(str(tmp_path))
    for gbps in (479.0, 481.0, 300.0):
        store.promote("k", "2026-11-30T03:00:00Z", {"node": gbps})
    assert store.baseline("k") == {"node": 479.0}
    assert store.baseline("other hardware") == {}
