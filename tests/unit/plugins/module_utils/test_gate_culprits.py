# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom the whole gate names, in a simulated cluster with faults of GPUs, nodes, paths and rails."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import Cluster, gate, guilty, node


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
