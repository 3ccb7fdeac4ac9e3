# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole gate against a simulated cluster with faults: verdicts, culprits, reports."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Optional

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import (
    _gate_compare,
    _gate_html,
    _gate_probe,
    _gate_report,
    _gate_store,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_run import Gate
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import SCHEMA, Cluster, node, settings


def gate(cluster: Cluster, nodes: Any = 4, baseline: Optional[dict[str, float]] = None, **given: Any) -> dict[str, Any]:
    """Run the gate and return its report, checked against the schema."""
    if isinstance(nodes, int):
        nodes = {f"n{i}": node(f"n{i}") for i in range(1, nodes + 1)}

    def parse(text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(text) if text.strip() else []
        return rows

    one = Gate(settings(**given), nodes, cluster.run, parse, cluster.said.append, cluster.logs.__setitem__, baseline)
    one.run()
    kept = {"key": "k", "proof": "p", "values": one.baseline}
    report = _gate_report.document(one, "2026-11-30T03:00:00Z", "2026-11-30T03:05:00Z", kept, "lab")
    jsonschema.validate(report, SCHEMA)
    ET.fromstring(_gate_report.junit(report))
    assert "<script" not in _gate_html.page(report)
    assert json.loads(json.dumps(report)) == report
    return report


def guilty(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(one["kind"], one["host"], one["device"]) for one in report["culprits"]}


def test_good_cluster_passes() -> None:
    cluster = Cluster()
    report = gate(cluster)
    assert (report["verdict"], report["culprits"], report["blocked"], report["warnings"]) == ("pass", [], [], [])
    assert [stage["name"] for stage in report["stages"]] == ["preflight", "nodes", "cluster"]
    assert report["expected"]["value_gbps"] == 370.8
    assert report["next_action"].startswith("Nothing")
    assert cluster.commands[-1] == ["scancel", "7"], "the allocation is given back"
    assert any("launch 3 of 3" in line for line in cluster.said)
    assert len(cluster.logs) == 2 + 3 + 3 * 4 + 3 * 2
    assert report["stages"][2]["results"][0]["ways"] == {"Using network IB": 8}


def test_stages_0_and_1_alone() -> None:
    cluster = Cluster(nodes={"n1+n2": ("together", 0.1)})
    report = gate(cluster, 3, stages=["nodes"])
    assert report["verdict"] == "pass"
    assert [stage["name"] for stage in report["stages"]] == ["preflight", "nodes"]
    assert report["expected"]["value_gbps"] == 480, "what a node alone should reach"
    report = gate(Cluster(nodes={"n2/3": ("slow", 0.5)}), 3, stages=["nodes"])
    assert guilty(report) == {("gpu", "n2", "3")}


def test_one_node_is_enough() -> None:
    report = gate(Cluster(), 1)
    assert report["verdict"] == "pass"
    assert [stage["name"] for stage in report["stages"]] == ["preflight", "nodes"]
    assert report["expected"]["value_gbps"] == 480


@pytest.mark.parametrize(
    ("kind", "words"), [("slow", "below the floor"), ("hang", "did not end"), ("crash", "ended with code 3")]
)
def test_bad_gpu_is_named(kind: str, words: str) -> None:
    report = gate(Cluster(nodes={"n3/5": (kind, 0.7)}))
    assert report["verdict"] == "fail"
    assert guilty(report) == {("gpu", "n3", "5")}
    assert words in report["culprits"][0]["evidence"]
    assert "n3" in report["next_action"]
    bad = {tuple(one["devices"]) for one in report["stages"][-1]["results"] if one["status"] == "fail"}
    assert bad == {tuple(sorted((5, other))) for other in range(8) if other != 5}


def test_several_bad_nodes_are_searched_side_by_side() -> None:
    cluster = Cluster(nodes={"n1/0": ("slow", 0.7), "n3/5": ("crash", 0), "n4/7": ("wrong", 0)})
    report = gate(cluster, 6)
    assert guilty(report) == {("gpu", "n1", "0"), ("gpu", "n3", "5"), ("gpu", "n4", "7")}
    assert report["stages"][-1]["rounds"] <= 28 + 7


@pytest.mark.parametrize("kind", ["wrong", "crash"])
def test_noise_beside_broken_data_accuses_no_other_gpu(kind: str) -> None:
    report = gate(Cluster(noise=0.3, nodes={"n2/5": (kind, 0)}), 2, expected={"node": 1}, max_cv=9)
    assert guilty(report) == {("gpu", "n2", "5")}


@pytest.mark.parametrize("kind", ["wrong", "usage", "copies", "slow"])
def test_bad_node_is_named(kind: str) -> None:
    report = gate(Cluster(nodes={"n2": (kind, 0.5)}))
    assert report["verdict"] == "fail"
    assert guilty(report) == {("node", "n2", "")}


@pytest.mark.parametrize(
    ("kind", "words"), [("slow", "below the floor"), ("usage", "no usable result"), ("hang", "end")]
)
def test_all_nodes_bad_alike_is_no_nodes_fault(kind: str, words: str) -> None:
    cluster = Cluster(nodes={f"n{i}": (kind, 0.5) for i in range(1, 5)})
    report = gate(cluster)
    assert (report["verdict"], report["culprits"]) == ("fail", [])
    assert "All 4 nodes fail alike" in report["next_action"]
    assert words in report["next_action"]
    assert [stage["name"] for stage in report["stages"]] == ["preflight", "nodes"], "nothing is searched"


def test_all_nodes_bad_in_different_ways_are_all_named() -> None:
    report = gate(Cluster(nodes={"n1": ("slow", 0.5), "n2": ("slow", 0.7), "n3": ("crash", 0)}), 3)
    assert {host for _kind, host, _device in guilty(report)} == {"n1", "n2", "n3"}


def test_node_that_is_bad_only_with_others_is_named_by_pairs() -> None:
    report = gate(Cluster(nodes={"n6": ("together", 0.6)}), 8)
    assert guilty(report) == {("node", "n6", "")}
    assert report["stages"][-1]["name"] == "isolation"
    assert report["stages"][-1]["rounds"] <= 3


def test_two_faults_of_two_kinds_are_named_in_one_run() -> None:
    """A node that fails alone is left out, so that a fault which only shows between the others is found as well."""
    cluster = Cluster(nodes={"n2/3": ("slow", 0.5), "n6": ("together", 0.6)})
    report = gate(cluster, 8)
    assert guilty(report) == {("gpu", "n2", "3"), ("node", "n6", "")}
    together = next(stage for stage in report["stages"] if stage["name"] == "cluster")
    assert "n2" not in together["nodes"]
    assert len(together["nodes"]) == 7
    assert [stage["name"] for stage in report["stages"]].count("isolation") == 1
    between = [one for one in report["stages"][-1]["results"] if not one["devices"]]
    assert not any("n2" in one["nodes"] for one in between), "no pair waits for a node that is known to be bad"
    page = _gate_html.page(report)
    assert "Without n2, which failed alone." in page
    assert "GPU 3 of n2 and n6 are at fault" in page


def test_what_hung_once_is_not_started_again() -> None:
    cluster = Cluster(nodes={"n1": ("hang", 0)})
    report = gate(cluster, 4, isolate=False)
    alone = {result["nodes"][0]: len(result["samples"]) for result in report["stages"][1]["results"]}
    assert alone == {"n1": 1, "n2": 3, "n3": 3, "n4": 3}, "two more time limits would be lost"
    assert report["stages"][1]["launches"] == 10


def test_node_that_hangs_whole_is_not_searched_pair_by_pair() -> None:
    """28 pairs of eight GPUs would be 28 time limits; four pairs hold every GPU once."""
    report = gate(Cluster(nodes={"n1": ("hang", 0)}), 3)
    assert guilty(report) == {("node", "n1", "")}
    assert len([one for one in report["stages"][-1]["results"] if one["devices"]]) == 4
    one = gate(Cluster(nodes={"n1/5": ("hang", 0)}), 3)
    assert guilty(one) == {("gpu", "n1", "5")}


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_node_with_few_gpus_that_hangs_is_named(gpus: int) -> None:
    nodes = {f"n{i}": node(f"n{i}", gpus=gpus) for i in range(1, 4)}
    report = gate(Cluster(nodes={"n1": ("hang", 0)}), nodes, stages=["nodes"])
    assert guilty(report) == {("node", "n1", "")}


def test_hang_and_a_slow_network_elsewhere() -> None:
    report = gate(Cluster(nodes={"n1": ("hang", 0), "n5": ("together", 0.5)}), 8)
    assert guilty(report) == {("node", "n1", ""), ("node", "n5", "")}


@pytest.mark.parametrize("expected", [{}, {"node": 480, "cluster": 370, "cluster_alltoall": 56}])
def test_fault_of_alltoall_alone_is_searched_with_alltoall(expected: dict[str, float]) -> None:
    cluster = Cluster(nodes={"n6": ("alltoall", 0.6)})
    report = gate(cluster, 8, expected=expected)
    assert [one["status"] for one in report["stages"][2]["results"]] == ["pass", "fail"]
    assert guilty(report) == {("node", "n6", "")}
    assert {one["collective"] for one in report["stages"][-1]["results"]} == {"alltoall"}


def test_pair_that_fails_once_accuses_nobody_and_is_told() -> None:
    report = gate(Cluster(nodes={"n3+n7": ("once", 3)}), 8)
    assert report["verdict"] == "fail"
    assert guilty(report) == set()
    assert "n3 and n7" in " ".join(report["warnings"])
    assert "good when they ran again" in _gate_html.page(report)


def test_heat_map_of_a_large_fleet_shows_the_bad_pairs() -> None:
    report = gate(Cluster(nodes={"n6": ("together", 0.6)}), 70, launches=1)
    drawn = _gate_html.page(report).partition('<figcaption class="soft">Pairs')[2].partition("</svg>")[0]
    bad = [tip for tip in re.findall(r"<title>(.*?)</title>", drawn) if "below the floor" in tip]
    assert len(bad) == 2 * 3, "three partners, each pair in both halves"
    assert all("n6" in tip for tip in bad)
    assert drawn.count("\u00d7</text>") == 2 * 3, "not by colour alone"


def test_heat_map_of_a_fleet_with_many_bad_nodes_shows_some() -> None:
    bad = {f"n{i}": ("together", 0.6) for i in range(1, 31)}
    report = gate(Cluster(nodes=bad), 240, launches=1)
    drawn = _gate_html.page(report).partition('<figcaption class="soft">Pairs')[2].partition("</svg>")[0]
    names = set(re.findall(r">(n\d+)</text>", drawn))
    assert 40 < len(names) <= 64
    assert drawn.startswith(f" of nodes ({len(names)} of 240")
    assert "below the floor" in drawn


def test_heat_map_of_each_node_whose_gpus_were_searched() -> None:
    report = gate(Cluster(nodes={"n2/3": ("slow", 0.5), "n3/0": ("slow", 0.5)}), 5)
    page = _gate_html.page(report)
    assert page.count("Pairs of GPUs of") == 2 * 2, "caption and label of each"
    drawn = page.partition("Pairs of GPUs of n2")[2].partition("</svg>")[0]
    bad = {tip for tip in re.findall(r"<title>(.*?)</title>", drawn) if "below" in tip}
    assert len(bad) == 14, "GPU 3 with seven others, in both halves"
    assert all("GPU 3" in tip for tip in bad)


def test_bad_path_is_named() -> None:
    report = gate(Cluster(nodes={"n1+n5": ("together", 0.6)}), 8)
    assert guilty(report) == {("path", "n1 and n5", "")}


def test_bad_path_between_two_leaves_is_named_by_the_leaves() -> None:
    names = {f"n{i}": {**node(f"n{i}"), "leaf": "ab"[i // 4]} for i in range(8)}
    across = {f"n{i}+n{j}": ("together", 0.6) for i in range(4) for j in range(4, 8)}
    report = gate(Cluster(nodes=across), names, drain=True)
    assert guilty(report) == {("path", "leaf a and leaf b", "")}
    assert "Look at what lies between leaf a and leaf b" in report["next_action"]
    report = gate(Cluster(nodes=across), {name: {**one, "leaf": ""} for name, one in names.items()})
    assert guilty(report) == {("path", "n0, n1, n2, n3 and n4, n5, n6, n7", "")}


def test_leaf_with_a_bad_uplink_is_named() -> None:
    names = {f"n{i:02d}": {**node(f"n{i:02d}"), "leaf": f"leaf{i // 4}"} for i in range(16)}
    across = {f"n{i:02d}+n{j:02d}": ("together", 0.6) for i in range(4) for j in range(4, 16)}
    report = gate(Cluster(nodes=across), names)
    assert guilty(report) == {("path", "leaf leaf0 and all others", "")}


def test_bad_only_in_a_crowd_is_narrowed_to_a_group() -> None:
    names = {f"n{i:02d}": {**node(f"n{i:02d}"), "leaf": f"leaf{i // 4}"} for i in range(16)}
    report = gate(Cluster(nodes={"n04+n06": ("crowd", 0.6)}), names)
    assert [one["kind"] for one in report["culprits"]] == ["path"]
    assert {"n04", "n06"} <= set(report["culprits"][0]["host"].replace(" to ", ", ").replace(" and ", ", ").split(", "))


def test_bad_only_between_halves() -> None:
    names = {f"n{i:02d}": {**node(f"n{i:02d}"), "leaf": f"leaf{i // 4}"} for i in range(8)}
    report = gate(Cluster(nodes={"n00+n07": ("crowd", 0.6)}), names)
    assert report["culprits"][0]["host"] == "n00 to n03 and n04 to n07"


RAILS = {f"mlx5_{i}": 50.0 for i in range(8)}
WITH_RAILS = {"gbps": 400.0, "why": "NICs 8 x 400 Gbit/s", "kind": "rdma", "nics": 8, "rails": RAILS}


def test_slow_nic_is_named_rail_by_rail() -> None:
    nodes = {f"n{i}": node(f"n{i}", network=WITH_RAILS) for i in range(1, 9)}
    slow = {"n6": ("together", 0.6), "n3": ("together", 0.5)}
    report = gate(Cluster(nodes=slow, rails={"n6~mlx5_2": 0.4, "n3~mlx5_7": 0.4}), nodes)
    assert guilty(report) == {("nic", "n6", "mlx5_2"), ("nic", "n3", "mlx5_7")}
    assert "Check NIC mlx5_7 of n3" in report["next_action"]
    assert "mlx5_2 alone" in _gate_html.page(report)


def test_node_whose_rails_are_equal_stays_guilty_itself() -> None:
    nodes = {f"n{i}": node(f"n{i}", network=WITH_RAILS) for i in range(1, 9)}
    report = gate(Cluster(nodes={"n6": ("together", 0.6)}), nodes, environment={"NCCL_IB_HCA": "mlx5"})
    assert guilty(report) == {("node", "n6", "")}


def test_slow_rail_of_all_nodes_is_named() -> None:
    nodes = {f"n{i}": node(f"n{i}", network=WITH_RAILS) for i in range(1, 9)}
    slow = {name: ("together", 0.8) for name in nodes}
    report = gate(Cluster(nodes=slow, rails={"*~mlx5_5": 0.4}), nodes)
    assert guilty(report) == {("path", "all 8 nodes", "mlx5_5")}
    assert "the rail mlx5_5 of all 8 nodes" in report["next_action"]


def test_slow_rail_between_two_nodes() -> None:
    nodes = {f"n{i}": node(f"n{i}", network=WITH_RAILS) for i in (1, 2)}
    report = gate(Cluster(nodes={"n1": ("together", 0.6)}, rails={"n2~mlx5_1": 0.4}), nodes)
    assert guilty(report) == {("path", "n1 and n2", "mlx5_1")}


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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": "degraded", "problems": ["row_remap_failed: GPU 3"]}, "row_remap_failed"),
        ({"state": "no_driver", "reason": "no nvidia-smi"}, "no nvidia-smi"),
        ({"mig": True}, "MIG"),
        ({"driver": "575.1"}, "driver is 575.1"),
        ({"gpus": 7}, "number of GPUs is 7"),
    ],
)
def test_facts_block(given: dict[str, Any], words: str) -> None:
    cluster = Cluster()
    nodes = {"n1": node("n1"), "n2": node("n2", **given), "n3": node("n3")}
    report = gate(cluster, nodes)
    assert report["verdict"] == "blocked"
    assert [entry["host"] for entry in report["blocked"]] == ["n2"]
    assert words in report["blocked"][0]["reason"]
    assert cluster.commands == [], "no GPU time is spent"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"memlock": "8192"}, "memlock"),
        ({"shm_mib": "64"}, "nccl_tests_min_shm_mib"),
        ({"binaries": "other"}, "binaries"),
        ({"libmpi": "other"}, "the MPI library"),
        ({"libnccl": "other"}, "the NCCL library"),
        ({"plugins": "other"}, "plugins (checksum) is other, on most nodes empty"),
        ({"nccl": "NCCL_IB_HCA=mlx5_9"}, "NCCL_IB_HCA=mlx5_9"),
        ({"busy": "4711 python"}, "other processes use its GPUs: 4711 python"),
        ({"missing": "libmpi.so.40"}, "libmpi.so.40 is missing"),
        ({"name": "stranger"}, "did not run there"),
        ({"acs": "0000:16:01.0 0000:38:01.0"}, "PCIe ACS at 0000:16:01.0"),
        ({"direct": "none"}, "NICs cannot reach GPU memory"),
    ],
)
def test_what_the_job_sees_blocks(given: dict[str, str], words: str) -> None:
    report = gate(Cluster(probe={"n2": given}), 3)
    assert report["verdict"] == "blocked"
    assert [entry["host"] for entry in report["blocked"]] == ["n2"]
    assert words in report["blocked"][0]["reason"]


def test_name_that_leads_back_to_the_node_blocks_mpirun_alone() -> None:
    views = {name: {"aliases": [name], "rdma": False, "product": "", "network": {}} for name in ("n1", "n2")}
    fields = {"missing": "", "shm_mib": "64000", "loopback": ""}
    found = {"n1": fields, "n2": {**fields, "loopback": "127.0.1.1"}}
    blocked, _accepted = _gate_probe.blocked_by_probe(views, found, settings(), "mpirun")
    assert [(one["host"], one["check"]) for one in blocked] == [("n2", "loopback")]
    assert "127.0.1.1" in blocked[0]["reason"]
    assert _gate_probe.blocked_by_probe(views, found, settings(), "slurm") == ([], [])


def test_closed_ports_are_a_warning() -> None:
    probe = {f"n{i}": {"address": f"10.0.0.{i}"} for i in range(1, 5)}
    report = gate(Cluster(probe=probe, ports="PORT\tn1\tn2\tok\n2: PORT\tn2\tn3\tNo route to host\n"))
    assert report["verdict"] == "pass"
    assert len(report["warnings"]) == 1
    assert "n2 does not reach n3 (10.0.0.3)" in report["warnings"][0]


def test_what_is_accepted_is_a_warning() -> None:
    found = {"n2": {"acs": "0000:16:01.0", "memlock": "64"}}
    report = gate(Cluster(probe=found), 3, accepted=["acs", "memlock"])
    assert report["verdict"] == "pass"
    assert [text.partition(":")[0] for text in report["warnings"]] == ["n2", "n2"]
    report = gate(Cluster(probe=found), 3, accepted=["acs"])
    assert "nccl_tests_accepted: [memlock]" in report["blocked"][0]["reason"]


@pytest.mark.parametrize(
    ("roce", "index", "words"),
    [
        ({"mlx5_0": [3]}, "", ""),
        ({"mlx5_0": [3]}, "3", ""),
        ({"mlx5_0": [3]}, "-1", ""),
        ({"mlx5_0": [3], "mlx5_1": []}, "", "mlx5_1 has no RoCE v2 GID"),
        ({"mlx5_0": [3, 5]}, "1", "NCCL_IB_GID_INDEX is 1, but routable RoCE v2 GIDs of mlx5_0 are at 3, 5"),
    ],
)
def test_gids_of_roce(roce: dict[str, list[int]], index: str, words: str) -> None:
    network = {"gbps": 400.0, "why": "NICs", "kind": "rdma", "nics": 8, "rails": {}, "roce": roce}
    nodes = {"n1": node("n1"), "n2": node("n2", network=network)}
    report = gate(Cluster(), nodes, environment={"NCCL_IB_GID_INDEX": index} if index else {})
    assert report["verdict"] == ("blocked" if words else "pass")
    assert not words or words in report["blocked"][0]["reason"]


def test_busy_nodes_block() -> None:
    report = gate(Cluster(salloc="Unable to allocate resources: Requested nodes are busy"))
    assert report["verdict"] == "blocked"
    assert "busy" in report["next_action"]


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
