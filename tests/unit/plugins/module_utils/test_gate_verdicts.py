# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the whole gate says of a simulated cluster besides culprits: evidence, warnings, figures that were expected."""

from __future__ import annotations

import random
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import Cluster, gate, guilty, node

COUNTED = """CNT\tn6\tgpu3\tecc_corrected\t10
CNT\tn6\tmlx5_2\tsymbol_error\t{symbols}
CNT\tn6\tmlx5_2\tlink_downed\t1
CNT\tn1\teth0\trx_errors\t7
"""


def test_counters_of_a_guilty_node_name_its_nic() -> None:
    counters = {"before": COUNTED.format(symbols=5), "after": COUNTED.format(symbols=9005)}
    report = gate(Cluster(nodes={"n6": ("together", 0.6)}, counters=counters), 8)
    assert guilty(report) == {("nic", "n6", "mlx5_2")}
    assert "mlx5_2: symbol_error rose by 9000 to 9005" in report["culprits"][0]["evidence"]
    assert [entry["counter"] for entry in report["counters"]] == ["symbol_error"]
    assert "Check NIC mlx5_2 of n6" in report["next_action"]
    assert "symbol_error rose by 9000" in _gate_html.page(report)


def test_xid_and_hot_gpu_are_evidence() -> None:
    counters = {
        "before": "CNT\tn2\t0000:1b:00\txid_13\t4\n",
        "during": "CNT\tn2\tgpu1\tclocks\t0x0000000000000044\nCNT\tn2\tgpu1\tcelsius\t93\nCNT\tn2\tgpu0\tclocks\t0x4\n",
        "after": "CNT\tn2\t0000:1b:00\txid_13\t4\nCNT\tn2\t0000:1b:00\txid_79\t1\n",
    }
    nodes = {f"n{i}": node(f"n{i}", addresses=["0000:1a:00.0", "00000000:1B:00.0"]) for i in (1, 2, 3)}
    report = gate(Cluster(nodes={"n2": ("slow", 0.5)}, counters=counters), nodes)
    assert guilty(report) == {("gpu", "n2", "1")}, "all its counters are one GPU's"
    evidence = report["culprits"][0]["evidence"]
    assert "GPU 1: 1 x Xid 79" in evidence
    assert "clocks lowered (hw_thermal_slowdown)" in evidence
    assert "93 degrees" in evidence
    assert "Xid 13" not in evidence, "it was there before"


def test_counters_that_grow_in_a_pass_are_a_warning() -> None:
    counters = {"before": "", "after": "CNT\tn2\t0000:1b:00\txid_63\t1\n"}
    report = gate(Cluster(counters=counters))
    assert report["verdict"] == "pass"
    assert "n2: 0000:1b:00: 1 x Xid 63" in report["warnings"]


def test_silent_fallback_to_sockets_fails() -> None:
    report = gate(Cluster(ways=["Socket"]))
    assert report["verdict"] == "fail"
    assert "NCCL used sockets" in report["next_action"]
    assert report["stages"][-1]["name"] == "cluster", "the cause is known, nothing is searched"


def test_two_nodes_bad_together() -> None:
    report = gate(Cluster(nodes={"n1+n2": ("together", 0.6)}), 2)
    assert guilty(report) == {("path", "n1 and n2", "")}


def test_two_nodes_run_as_a_ring() -> None:
    seen: list[dict[str, str]] = []
    cluster = Cluster()
    run = cluster.run

    def spy(launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        seen.extend(launch["environment"] for launch in launches if launch["name"].startswith("cluster"))
        return run(launches)

    cluster.run = spy  # type: ignore[method-assign]
    gate(cluster, 2)
    assert seen
    assert all(environment["NCCL_ALGO"] == "Ring" for environment in seen)


def test_launcher_that_fails_once_is_a_warning() -> None:
    report = gate(Cluster(first_start=True), 1)
    assert report["verdict"] == "pass"
    assert "Segmentation fault" in report["warnings"][0]


def test_noise_is_unstable_and_was_measured_again() -> None:
    report = gate(Cluster(noise=0.3), 8, floor=0.1, over=9)
    assert report["verdict"] == "unstable"
    assert any(len(result["samples"]) == 9 for result in report["stages"][1]["results"])
    assert report["culprits"] == []


def test_launches_that_dip_now_and_then_are_no_verdict() -> None:
    """5 % of all launches lose 25 %: the noise of healthy fleets. Nobody is accused, and most runs pass."""

    class Dipping(random.Random):
        def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
            return super().gauss(mu, sigma) * (0.75 if self.random() < 0.05 else 1)

    verdicts = []
    for seed in range(20):
        cluster = Cluster(noise=0.015)
        cluster.rng = Dipping(seed)
        report = gate(cluster, 32)
        assert report["culprits"] == []
        verdicts.append(report["verdict"])
    assert verdicts.count("pass") >= 18
    assert "fail" not in verdicts


def test_more_than_possible_is_flagged() -> None:
    report = gate(Cluster(nodes={"n1": ("fast", 1.3)}), 1)
    assert report["verdict"] == "pass"
    assert "wrong algorithm" in report["warnings"][0]
    assert "wrong algorithm" in report["next_action"]


def test_configured_figures_win() -> None:
    report = gate(Cluster(), expected={"node": 600, "cluster": 10})
    assert report["verdict"] == "fail"
    assert "nccl_tests_expected_busbw_gbps.node" in report["stages"][1]["results"][0]["expected_why"]


def test_tcp_is_judged_by_data_only_until_configured() -> None:
    network = {"gbps": None, "why": "TCP: no RDMA port is active", "kind": "tcp", "nics": 0}
    nodes = {name: node(name, network=network) for name in ("n1", "n2")}
    report = gate(Cluster(), nodes)
    assert report["verdict"] == "pass"
    assert any("not judged" in text for text in report["warnings"])
    report = gate(Cluster(), nodes, expected={"cluster": 1000})
    assert report["verdict"] == "fail"


def test_regression_against_the_baseline() -> None:
    assert gate(Cluster(), baseline={"node": 480.0, "cluster": 366.0})["verdict"] == "pass"
    report = gate(Cluster(), baseline={"node": 520.0})
    assert report["verdict"] == "fail"
    assert "baseline" in report["stages"][1]["results"][0]["reason"]
