# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expected bandwidth of machines whose published runs are known, and what the derivation says of them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_model as model

H100, A100, RTX = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 5090"
SKYLAKE, SAPPHIRE, EPYC = "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", "Intel(R) Xeon(R) Platinum 8480C", "AMD EPYC 9654"


def gpu(name: str, count: int, label: Any, links: int = 0, generation: int = 0, pcie: int = 5) -> dict[str, Any]:
    """`gpu_facts` of a node; `label` is the matrix' entry for every pair, or a function of the pair."""
    entry = label if callable(label) else lambda i, j: label
    slot = {"generation": 1, "generation_max": pcie, "width": 16, "width_max": 16}
    return {
        "state": "ok",
        "driver": {"version": "580.95.05"},
        "devices": [{"index": i, "name": name, "pcie": slot, "mig": {"enabled": False}} for i in range(count)],
        "topology": {
            "gpus": [["X" if i == j else entry(i, j) for j in range(count)] for i in range(count)],
            "nics": [
                {"name": f"mlx5_{i}", "gpus": ["PIX" if i == j else "SYS" for j in range(count)]} for i in range(8)
            ],
            "nvlink": {"links_per_gpu": links, "generation": generation} if links else None,
        },
        "problems": [],
    }


def fabric(count: int, gbps: float, generation: int = 5, state: str = "ACTIVE") -> dict[str, Any]:
    slot = {"generation": generation, "generation_max": generation, "width": 16, "width_max": 16}
    port = {"port": 1, "state": state, "rate_gbps": gbps}
    return {"rdma": [{"name": f"mlx5_{i}", "pcie": slot, "ports": [port]} for i in range(count)], "ethernet": []}


def halves(i: int, j: int) -> str:
    return "PXB" if (i < 4) == (j < 4) else "SYS"


def pairs(i: int, j: int) -> str:
    return "NV4" if i // 2 == j // 2 else "SYS"


@pytest.mark.parametrize(
    ("facts", "processor", "ring", "peak"),
    [
        (gpu(H100, 8, "NV18", 18, 4), SAPPHIRE, 370.8, 480.0),
        (gpu(H100, 4, "NV6", 18, 4), SAPPHIRE, 370.8, 370.8),
        (gpu("NVIDIA H800", 8, "NV8", 8, 4), SAPPHIRE, 164.8, 213.33),
        (gpu("NVIDIA H100 NVL", 2, "NV12", 12, 4), SAPPHIRE, 247.2, 247.2),
        (gpu("NVIDIA B200", 8, "NV18", 18, 5), SAPPHIRE, 721.8, 842.0),
        (gpu(A100, 8, "NV12", 12, 3), EPYC, 240.0, 240.0),
        (gpu(A100, 4, "NV4", 12, 3), EPYC, 240.0, 240.0),
        (gpu("NVIDIA RTX A6000", 2, "NV4", 4, 3), EPYC, 48.0, 48.0),
        (gpu("NVIDIA A40", 8, pairs, 4, 3, pcie=4), EPYC, 16.0, 16.0),
        (gpu("NVIDIA L40S", 8, halves, pcie=4), SKYLAKE, 10.0, 10.0),
        (gpu("NVIDIA L40S", 8, halves, pcie=4), SAPPHIRE, 22.0, 22.0),
        (gpu("NVIDIA L40S", 4, "PXB", pcie=4), SKYLAKE, 24.0, 24.0),
        (gpu(RTX, 2, "PHB", pcie=3), SKYLAKE, 12.0, 12.0),
    ],
    ids=lambda value: value["devices"][0]["name"] + f" x{len(value['devices'])}" if isinstance(value, dict) else None,
)
def test_inside_a_node(facts: dict[str, Any], processor: str, ring: float, peak: float) -> None:
    node = model.capability(facts, fabric(8, 400), processor)
    assert node["ring"]["gbps"] == pytest.approx(ring)
    assert node["peak"]["gbps"] == pytest.approx(peak)


def test_cube_mesh_of_v100() -> None:
    one, two = (
        {(0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7), (2, 6), (3, 7)},
        {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3)},
    )
    two |= {(4, 7), (5, 6), (6, 7)}

    def label(i: int, j: int) -> str:
        edge = (min(i, j), max(i, j))
        return "NV1" if edge in one else "NV2" if edge in two else "SYS"

    node = model.capability(gpu("Tesla V100-SXM2-32GB", 8, label, 6, 2, pcie=3), {}, SKYLAKE)
    assert node["ring"]["gbps"] == pytest.approx(120)
    assert "direct NVLink" in node["ring"]["why"]


def test_degraded_slot_counts_as_it_trained() -> None:
    facts = gpu("NVIDIA L40S", 4, "PXB", pcie=4)
    facts["devices"][2] = {**facts["devices"][2], "pcie": {"generation": 4, "generation_max": 4, "width": 8}}
    assert model.capability(facts)["ring"]["gbps"] == pytest.approx(12)
    facts["problems"] = [{"code": "pcie_degraded", "device": 1, "detail": "generation 1 under load"}]
    assert model.capability(facts)["ring"]["gbps"] == pytest.approx(3)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_inside_a_node_of_one_gpu(count: int) -> None:
    assert model.capability(gpu(H100, count, ""))["ring"] == {
        "gbps": None,
        "why": "one GPU: nothing to measure inside the node",
    }


def test_no_topology_is_no_guess() -> None:
    node = model.capability({**gpu(H100, 8, "NV18", 18, 4), "topology": None}, fabric(8, 400))
    assert node["ring"]["gbps"] is None
    assert "no topology matrix" in node["ring"]["why"]


def test_bare_host_has_no_figures() -> None:
    node = model.capability({"state": "no_driver", "pci_count": 8, "devices": [], "topology": None})
    assert (node["state"], node["gpus"], node["peak"]["gbps"]) == ("no_driver", 8, None)


@pytest.mark.parametrize(
    ("nics", "gbps"),
    [(fabric(8, 400), 400.0), (fabric(4, 200, 4), 100.0), (fabric(8, 400, 4), 192.0), (fabric(12, 400), 400.0)],
    ids=["8x400", "4x200", "400G cards in PCIe 4 slots", "four more for storage"],
)
def test_network(nics: dict[str, Any], gbps: float) -> None:
    node = model.capability(gpu(H100, 8, "NV18", 18, 4), nics)
    assert node["network"]["gbps"] == pytest.approx(gbps)
    assert node["network"]["kind"] == "rdma"


def test_given_nics_win() -> None:
    assert model.capability(gpu(H100, 8, "NV18", 18, 4), fabric(12, 400), nics=["mlx5_11"])["network"]["gbps"] == 50


@pytest.mark.parametrize("ports", [fabric(8, 400, state="DOWN"), {}])
def test_tcp_has_no_model(ports: dict[str, Any]) -> None:
    ports = {
        **ports,
        "ethernet": [{"name": "eth0", "carrier": True, "speed_mbps": 100000}, {"name": "lo", "speed_mbps": None}],
    }
    node = model.capability(gpu(H100, 8, "NV18", 18, 4), ports)
    assert node["network"]["kind"] == "tcp"
    figure = model.expected("all_reduce", {"a": node, "b": node})
    assert figure["gbps"] is None
    assert "eth0, 100 Gbit/s" in figure["why"]


def test_whole_cluster_takes_the_smaller_of_inside_and_network() -> None:
    fast = model.capability(gpu(H100, 8, "NV18", 18, 4), fabric(8, 400))
    thin = model.capability(gpu(A100, 8, "NV12", 12, 3), fabric(4, 200, 4))
    assert model.expected("all_reduce", {"n1": fast})["gbps"] == 480
    assert model.expected("all_reduce", {"n1": fast, "n2": fast})["gbps"] == pytest.approx(370.8)
    assert model.expected("all_reduce", {"n1": thin, "n2": thin})["gbps"] == pytest.approx(100)
    why = model.expected("all_reduce", {"n1": thin, "n2": thin})["why"]
    assert "12 links a GPU x 20 GB/s" in why
    assert "4 x 200 Gbit/s" in why


def test_alltoall_keeps_the_part_that_stays_inside() -> None:
    node = model.capability(gpu(H100, 8, "NV18", 18, 4), fabric(8, 400))
    assert model.expected("alltoall", {"a": node, "b": node})["gbps"] == pytest.approx(50 * 15 / 8)
    many = {f"n{i}": node for i in range(16)}
    assert model.expected("alltoall", many)["gbps"] == pytest.approx(50 * 127 / 120, abs=0.01)


def test_one_gpu_a_node_is_the_network() -> None:
    node = model.capability(gpu("NVIDIA GH200 120GB", 1, ""), fabric(1, 200))
    assert model.expected("all_reduce", {"a": node, "b": node})["gbps"] == 25


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("alltoall", 16, 0.9375),
        ("broadcast", 8, 1),
        ("all_reduce", 1, 1),
    ],
)
def test_busbw_factor(collective: str, ranks: int, factor: float) -> None:
    assert model.busbw_factor(collective, ranks) == pytest.approx(factor)


def test_ring_search_ends_quickly_on_awkward_machines() -> None:
    facts = gpu("NVIDIA L40S", 16, lambda i, j: "SYS" if 15 in (i, j) else "PXB", pcie=4)
    assert model.capability(facts, {}, EPYC)["ring"]["gbps"] == 16
