# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks below NCCL: what the tools print, and what their figures mean for the gate."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_below_nccl as wire
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_report
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_run import Gate
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import SCHEMA, Cluster, node, settings

RAILS = {"mlx5_0": 50.0, "mlx5_1": 50.0}
RDMA = {"gbps": 100.0, "why": "NICs 2 x 400 Gbit/s", "kind": "rdma", "nics": 2, "rails": RAILS, "roce": {}}
TCP: dict[str, Any] = {
    "gbps": None,
    "why": "TCP: no RDMA port is active",
    "kind": "tcp",
    "nics": 0,
    "rails": {},
    "roce": {},
}
PERFTEST = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 1            Transport type : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      3737600          0.00               {gbit}             0.746812
---------------------------------------------------------------------------------------
"""
NVBANDWIDTH = """nvbandwidth Version: v0.5
Built from Git version: v0.5

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2         3
 0     {row}

SUM host_to_device_memcpy_ce 208.05
"""


def iperf3(gbit: float) -> str:
    refused = json.dumps({"error": "unable to connect to server: Connection refused"}, indent=1)
    good = json.dumps({"start": {}, "end": {"sum_received": {"bits_per_second": gbit * 1e9}}}, indent="\t")
    return f"{refused}\n{good}\n"


def run(
    answer: Callable[[str], dict[str, Any]], tools: str, network: dict[str, Any], faults: Any = None, **given: Any
) -> dict[str, Any]:
    nodes = {f"n{i}": node(f"n{i}", network=dict(network)) for i in range(1, 5)}
    probe = {name: {"tools": tools, "address": f"10.0.0.{name[1:]}"} for name in nodes}
    cluster = Cluster(wire=answer, probe=probe, nodes=faults or {})
    options = settings(collectives=["all_reduce"], **given)
    one = Gate(
        options, nodes, cluster.run, lambda text: json.loads(text or "[]"), cluster.said.append, lambda *_x: None
    )
    one.run()
    kept = {"key": "", "proof": "", "values": {}}
    report = _gate_report.document(one, "2026-11-30T03:00:00Z", "2026-11-30T03:05:00Z", kept, "")
    jsonschema.validate(report, SCHEMA)
    assert _gate_report.junit(report)
    return report


def checks(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next((s["results"] for s in report["stages"] if s["name"] == "wire"), [])
    return found


def test_tcp_is_judged_against_the_slowest_wire() -> None:
    rates = {"wire-iperf3-n1-n3": 4900.0, "wire-iperf3-n2-n4": 4960.0}
    report = run(lambda label: {"stdout": iperf3(rates[label])}, "iperf3", TCP)
    assert [check["figures"][0]["value"] for check in checks(report)] == [612.5, 620.0]
    assert report["expected"]["value_gbps"] == pytest.approx(367.5), "60 % of it"
    assert "612 GB/s that iperf3 measured between n1 and n3" in report["expected"]["derivation"]
    assert report["verdict"] == "pass"
    assert report["warnings"] == [], "it is judged"
    faults = {"n1+n2": ("together", 0.5)}
    slow = run(lambda label: {"stdout": iperf3(rates[label])}, "iperf3", TCP, faults, isolate=False)
    assert slow["verdict"] == "fail"
    assert "iperf3 measured" in slow["stages"][-1]["results"][0]["expected_why"]


def test_configured_figure_wins_over_the_wire() -> None:
    report = run(lambda _label: {"stdout": iperf3(49600)}, "iperf3", TCP, expected={"cluster": 366})
    assert (report["verdict"], report["expected"]["value_gbps"]) == ("pass", 366)


def test_tool_without_a_figure_is_skipped_with_its_words() -> None:
    failed = {"rc": 1, "stderr": "iperf3: error - unable to connect to server: No route to host"}
    report = run(lambda _label: failed, "iperf3", TCP)
    assert report["verdict"] == "pass"
    assert {check["status"] for check in checks(report)} == {"skipped"}
    assert "No route to host" in checks(report)[0]["reason"]
    assert any("not judged" in text for text in report["warnings"])


def test_rails_below_their_card_fail_and_are_named() -> None:
    slow = {"stdout": PERFTEST.format(gbit=96.4)}
    good = {"stdout": PERFTEST.format(gbit=392.11)}
    report = run(
        lambda label: slow if "mlx5_1-n2-n4" in label else good, "ib_write_bw", RDMA, expected={"cluster": 366}
    )
    assert len(checks(report)) == 4
    assert report["verdict"] == "fail"
    assert [(one["kind"], one["host"], one["device"]) for one in report["culprits"]] == [
        ("path", "n2 and n4", "mlx5_1")
    ]
    assert "12.05 GB/s, 24.1 % of 50 GB/s" in report["culprits"][0]["evidence"]
    assert "ib_write_bw over mlx5_1" in _gate_html.page(report)


def test_gpu_with_a_slow_slot_is_named() -> None:
    def answer(label: str) -> dict[str, Any]:
        row = "55.63     55.64     13.20     55.60" if label.endswith("n3") else "55.63     55.64     55.61     55.60"
        return {"stdout": NVBANDWIDTH.format(row=row)}

    report = run(answer, "nvbandwidth", RDMA, expected={"cluster": 366})
    assert [(one["kind"], one["host"], one["device"]) for one in report["culprits"]] == [("gpu", "n3", "2")]
    assert "13.2 GB/s from its host" in report["next_action"]


def test_nothing_is_measured_where_there_is_no_tool_or_no_wish() -> None:
    assert checks(run(lambda _label: {"rc": 1}, "", RDMA, expected={"cluster": 366})) == []
    assert checks(run(lambda _label: {"rc": 1}, "iperf3", TCP, wire=False)) == []


def test_pair_script_serves_and_asks(tmp_path: Path) -> None:
    """Both sides for real, with an iperf3 that says how it was called."""
    (tmp_path / "iperf3").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n', encoding="utf-8")
    (tmp_path / "iperf3").chmod(0o755)
    for me in ("n1", "n2"):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": me}
        words = ["sh", "-c", wire.PAIR, "pair", "n1", "10.0.0.1", "iperf3", "27515", "5"]
        subprocess.run(words, env=environment, check=True, timeout=30)
    assert (tmp_path / "calls").read_text().splitlines() == ["-s -1 -p 27515", "-c 10.0.0.1 -p 27515 -P 8 -t 5 -J"]
