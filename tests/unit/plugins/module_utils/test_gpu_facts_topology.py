# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection matrix: every recording, and what it says about lost NVLink connections."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvlink
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_smi_topology import parse_legend, parse_topology
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures

FOLDER = "nvidia-smi-topo"
EXPECTED = fixtures.expected("nvidia_smi_topo")
READABLE = sorted(name for name, wanted in EXPECTED.items() if wanted)


def read(name: str) -> Any:
    return parse_topology(fixtures.text(FOLDER, name))


def test_every_recording_has_an_expectation() -> None:
    assert sorted(EXPECTED) == fixtures.names(FOLDER)


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(READABLE)))
def test_what_is_no_matrix_is_none(name: str) -> None:
    assert read(name) is None


@pytest.mark.parametrize("name", READABLE)
def test_links_between_gpus(name: str) -> None:
    matrix, wanted = read(name).gpus, EXPECTED[name]
    count = wanted["gpus"]
    assert [len(row) for row in matrix] == [count] * count
    named = {tuple(pair): link for link, pairs in wanted.get("links", {}).items() if link != "others" for pair in pairs}
    other = wanted.get("link") or wanted.get("links", {}).get("others")
    for one in range(count):
        for two in range(count):
            shown = min(one, two) < wanted.get("rows", count)
            link = named.get((min(one, two), max(one, two)), other) if shown else None
            assert matrix[one][two] == ("X" if one == two else link), (one, two)


@pytest.mark.parametrize("name", READABLE)
def test_nics(name: str) -> None:
    topology, wanted = read(name), EXPECTED[name]
    assert [nic for nic, _row in topology.nics] == wanted["nics"]
    nearest = wanted.get("nearest", {"link": "", "nics": [[]] * wanted["gpus"]})
    found = [
        [number for number, (_nic, row) in enumerate(topology.nics) if row[gpu] == nearest["link"]]
        for gpu in range(wanted["gpus"])
    ]
    assert found == nearest["nics"]


@pytest.mark.parametrize("name", READABLE)
def test_places(name: str) -> None:
    topology = read(name)
    places = [(cpus, numa) for cpus, numa, times in EXPECTED[name]["places"] for _gpu in range(times)]
    assert list(zip(topology.cpus, topology.numa)) == places


@pytest.mark.parametrize("name", READABLE)
def test_links_per_gpu(name: str) -> None:
    matrix = read(name).gpus
    assert (_nvlink.links_per_gpu(matrix, boards("", len(matrix))) or None) == EXPECTED[name]["nvlink"]


def test_a_garbled_legend_names_only_what_is_a_name() -> None:
    legend = parse_legend(fixtures.text(FOLDER, "many-nic-garbled-legend-cut.txt").splitlines())
    assert legend == {f"NIC{number}": f"mlx5_{number}" for number in range(2, 34)} | {
        f"NIC{33 + number}": f"mlx5_bond_{number}" for number in range(1, 9)
    }


def test_a_matrix_of_pci_only_says_nothing_about_nvlink() -> None:
    assert read("h100-sxm5-8x-12nic-mp-dell.txt").shows_nvlink is False
    assert read("h100-sxm5-8x-8nic-driver570-spaces.txt").shows_nvlink is True
    assert read("a100-8x-nv12-narrow.txt").shows_nvlink is True  # no legend: nothing says otherwise


# Odd rows


def table(*rows: str) -> Any:
    head = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    return parse_topology(head + "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("GPU1\tNV18\t X \tNODE\tPXB\t0-55,112-167\t1\t\tN/A", ("0-55,112-167", 1)),
        ("GPU1\tNV18\t X \tNODEPXB\t0-55,112-167\t1\t\tN/A", ("0-55,112-167", 1)),
        ("GPU1\tNV18X\tNODE\tPXB\t0-55\t1\t\tN/A", ("0-55", 1)),
        ("GPU1    NV18     X      NODEPXB     0-55    1               N/A", ("0-55", 1)),
        ("GPU1\tNV18\t X \tNODE\tPXB\t\t1\t\tN/A", (None, 1)),
        ("GPU1\tNV18\t X \tNODE\tPXB\t3\t1\t\tN/A", ("3", 1)),
        ("GPU1\tNV18\t X \tNODE\tPXB\t\t\t\tN/A", (None, None)),
        ("GPU1    NV18     X      NODE    PXB      1               N/A", (None, None)),  # which one is missing?
    ],
)
def test_glued_and_empty_cells(row: str, place: tuple[str | None, int | None]) -> None:
    topology = table(row)
    assert topology.gpus == [["X", "NV18"], ["NV18", "X"]]
    assert [nic[1] for _name, nic in topology.nics] == ["NODE", "PXB"]
    assert (topology.cpus[1], topology.numa[1]) == place


@pytest.mark.parametrize(
    "row",
    [
        "GPU1\tNV18\t X \tPXB\t0-55\t1\t\tN/A",  # one link lost: which?
        "GPU1\tNV18\t X \tPXB\tNODE\tNODE\t0-55\t1\t\tN/A",
        "GPU1\t X \tNV18\tPXB\tNODE\t0-55\t1\t\tN/A",
    ],
)
def test_a_row_that_does_not_fit_is_not_read(row: str) -> None:
    topology = table("GPU0\t X \tNV18\tPIX\tSYS\t0-27\t0\t\tN/A", row)
    assert topology.gpus == [["X", "NV18"], ["NV18", "X"]]
    assert [nic for _name, nic in topology.nics] == [["PIX", None], ["SYS", None]]


def test_the_last_link_of_a_cut_row_is_not_believed() -> None:
    assert table("GPU0\t X \tNV18\tPIX\tSYS\t0-27\t0\t\tN/A", "GPU1\tNV18\t X \tPI").nics[0][1] == ["PIX", None]
    cut: Any = parse_topology("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV1")
    assert cut.gpus[0] == ["X", None, None]


def test_glued_names() -> None:
    topology: Any = parse_topology("\tGPU0\tGPU1NIC0\tNIC1CPU Affinity\nGPU0\t X \tNV4\tPIX\tSYS\t0-7\n")
    assert [name for name, _row in topology.nics] == ["NIC0", "NIC1"] and topology.cpus == ["0-7", None]


# Lost connections


def boards(name: str, count: int, mig: bool = False) -> list[_nvlink.Board]:
    return [_nvlink.Board(name, None, mig)] * count


def mesh(count: int, link: str = "NV18", **changed: str) -> list[list[str | None]]:
    """All connected alike, but for pairs such as p2_5="NODE"."""
    matrix: list[list[str | None]] = [["X" if one == two else link for two in range(count)] for one in range(count)]
    for pair, other in changed.items():
        one, two = (int(number) for number in pair[1:].split("_"))
        matrix[one][two] = matrix[two][one] = other
    return matrix


def alone(count: int, gpu: int, link: str = "NODE") -> list[list[str | None]]:
    return mesh(count, **{f"p{gpu}_{other}": link for other in range(count) if other != gpu})


# DGX-1 with V100: 6 links a GPU, to four of its seven peers
CUBE = [
    [int(cell) for cell in row]
    for row in ("01122000", "10210200", "12020010", "21200001", "20000112", "02001021", "00101202", "00012120")
]


def cube(**changed: int) -> list[list[str | None]]:
    counts = [list(row) for row in CUBE]
    for pair, count in changed.items():
        one, two = (int(number) for number in pair[1:].split("_"))
        counts[one][two] = counts[two][one] = count
    return [
        ["X" if one == two else f"NV{count}" if count else "SYS" for two, count in enumerate(row)]
        for one, row in enumerate(counts)
    ]


H100, PCIE, NVL = "NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 NVL"
PAIRS = mesh(4, "SYS", p0_1="NV12", p2_3="NV12")


@pytest.mark.parametrize(
    ("matrix", "name", "found"),
    [
        pytest.param(mesh(8), H100, [], id="healthy"),
        pytest.param(mesh(8, p2_5="NODE"), H100, [2, 5], id="one connection lost: both its ends"),
        pytest.param(alone(8, 3), H100, [3], id="a GPU without any: only that one"),
        pytest.param(alone(8, 3), "", [3], id="a GPU without any, names unknown"),
        pytest.param(alone(8, 3, "NV17"), H100, [3], id="one of 18 links lost"),
        pytest.param(mesh(8, "NODE"), H100, [*range(8)], id="all lost on a baseboard"),
        pytest.param(mesh(2, "SYS"), H100, [0, 1], id="all lost, two GPUs"),
        pytest.param(mesh(8, "SYS"), PCIE, [], id="PCIe cards without bridges"),
        pytest.param(mesh(8, "SYS"), "Tesla P40", [], id="cards that have no NVLink"),
        pytest.param(PAIRS, PCIE, [], id="PCIe cards bridged in pairs"),
        pytest.param(mesh(4, "SYS", p0_1="NV12"), PCIE, [], id="only one pair bridged"),
        pytest.param(mesh(4, "SYS", p0_1="NV12", p2_3="NV8"), PCIE, [2, 3], id="a bridge with lost links"),
        pytest.param(mesh(4, "SYS", p0_1="NV12"), NVL, [2, 3], id="a lost bridge where all have one"),
        pytest.param(cube(), "Tesla V100-SXM2-32GB", [], id="hybrid cube"),
        pytest.param(cube(p0_4=0), "Tesla V100-SXM2-32GB", [0, 4], id="hybrid cube, one connection lost"),
        pytest.param(
            cube(p0_1=0, p0_2=0, p0_3=0, p0_4=0), "Tesla V100-SXM2-32GB", [0], id="hybrid cube, a GPU without any"
        ),
        pytest.param([["X", "NV18"], ["NV18", "X"]], H100, [], id="two GPUs of a switched board"),
        pytest.param(mesh(3, "NV6", p0_1="ERR!"), H100, [0, 1], id="a connection in error"),
        pytest.param([["X"]], H100, [], id="one GPU has no peer to miss"),
    ],
)
def test_lost_connections(matrix: list[list[str | None]], name: str, found: list[int]) -> None:
    lost = _nvlink.inactive(matrix, boards(name, len(matrix)))
    assert sorted(lost) == found
    assert all(lost.values())


def test_the_cube_is_one() -> None:
    assert [sum(row) for row in CUBE] == [6] * 8
    assert all(CUBE[one][two] == CUBE[two][one] for one in range(8) for two in range(8))


def test_gpus_in_mig_mode_have_no_verdict() -> None:
    assert _nvlink.inactive(mesh(8, "NODE"), boards(H100, 8, mig=True)) == {}


def test_only_equal_products_are_compared() -> None:
    mixed = [*boards(PCIE, 2), *boards("NVIDIA RTX A6000", 2)]
    assert _nvlink.inactive(mesh(4, "SYS", p0_1="NV12", p2_3="NV4"), mixed) == {}


@pytest.mark.parametrize(
    ("matrix", "architecture", "name", "links"),
    [
        pytest.param(mesh(8, "NV12"), "Ampere", "", (12, 3), id="switched"),
        pytest.param(mesh(4, "NV4"), "Ampere", "", (12, 3), id="four GPUs connected directly"),
        pytest.param(mesh(4, "NV6"), "Hopper", "", (18, 4), id="four H100 connected directly"),
        pytest.param(mesh(4, "NV18"), "Blackwell", "", (18, 5), id="a tray of GB200"),
        pytest.param(mesh(16, "NV6"), None, "Tesla V100-SXM3-32GB", (6, 2), id="DGX-2, driver too old to tell"),
        pytest.param(cube(), "Volta", "", (6, 2), id="hybrid cube"),
        pytest.param(mesh(4, "SYS", p0_1="NV12"), "Ampere", "", (12, 3), id="one bridged pair"),
        pytest.param(mesh(4, "SYS"), "Ampere", "", (0, 3), id="none"),
    ],
)
def test_count_and_generation(
    matrix: list[list[str | None]], architecture: str | None, name: str, links: tuple[int, int | None]
) -> None:
    known = [_nvlink.Board(name, architecture, False)] * len(matrix)
    assert (_nvlink.links_per_gpu(matrix, known), _nvlink.generation(known)) == links
