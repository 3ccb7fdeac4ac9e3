"""docs/expectation.md says what the gate's model computes: its rates, and its example from the facts that it shows."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_model as model
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_ring as ring
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_below_nccl import TCP_SHARE
from ansible_collections.gpuops.cluster.tests.unit.support.documented import PROJECT, options

PAGE = (PROJECT / "docs/expectation.md").read_text(encoding="utf-8")
FLOOR, OVER, MARGIN = (
    options("nccl_tests")[f"nccl_tests_{n}"]["default"] for n in ("floor", "over", "regression_margin")
)
FACTS: dict[str, Any] = yaml.safe_load(PAGE.split("```yaml\n")[1].split("```")[0])
BRIDGES = {
    "Intel Skylake to Ice Lake": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
    "Intel Sapphire Rapids": "Intel(R) Xeon(R) Platinum 8480C",
    "Intel Emerald Rapids or newer": "Intel(R) Xeon(R) Platinum 8592+",
    "AMD": "AMD EPYC 9654",
}


def nodes(degraded: bool) -> dict[str, dict[str, Any]]:
    """Eight servers with the facts of the page; one of them with a NIC in eight lanes."""
    cluster = {f"gpu{number:02}": copy.deepcopy(FACTS) for number in range(1, 9)}
    if degraded:
        cluster["gpu05"]["fabric"]["rdma"][1]["pcie"]["width"] = 8
    return {name: model.capability(facts["gpu"], facts["fabric"]) for name, facts in cluster.items()}


def row(what: str, figure: dict[str, Any]) -> str:
    return f"| {what} | {figure['why']} | {figure['gbps']:g} | {round(figure['gbps'] * FLOOR, 2):g} |"


def rows() -> list[str]:
    good, bad = nodes(degraded=False), nodes(degraded=True)
    return [
        row("one node, all_reduce", model.expected("all_reduce", {"gpu01": good["gpu01"]})),
        row("all nodes, all_reduce", model.expected("all_reduce", good)),
        row("all nodes, alltoall", model.expected("alltoall", good)),
        row("all nodes, all_reduce", model.expected("all_reduce", bad)),
        row("all nodes, alltoall", model.expected("alltoall", bad)),
    ]


@pytest.mark.parametrize("line", rows())
def test_the_example_is_what_the_model_says(line: str) -> None:
    assert line in PAGE.splitlines()


def test_the_time_of_the_example() -> None:
    algorithm = 50 / model.busbw_factor("all_reduce", 32)
    assert f"{algorithm:.1f} GB/s of the algorithm's" in PAGE.replace("\n", " ")
    assert f"an all_reduce of 1 GiB should take {2**30 / algorithm / 1e6:.1f} ms" in PAGE.replace("\n", " ")


def test_the_rates_are_the_models() -> None:
    said = dict(re.findall(r"^\| ([^|]+?)(?: \([^|]+\))? \| ([\d.]+) \|$", PAGE, flags=re.MULTILINE))
    nvlink = {f"NVLink {generation}": rate for generation, rate in ring.NVLINK_RATE.items()}
    pcie = {f"PCIe {generation} x16": ring.PCIE_X16_RATE[generation] for generation in (3, 4, 5)}
    bridges = {f"between sockets: {name}": ring.host_bridge(cpu)["gbps"] for name, cpu in BRIDGES.items()}
    other = {"NVLink bridge of RTX 3090, A6000, A40": ring.GA102_RATE}
    assert {name: float(rate) for name, rate in said.items()} == {**nvlink, **pcie, **bridges, **other}


def test_nvls_and_shares_are_the_models() -> None:
    text = " ".join(PAGE.split())
    for generation in (4, 5):
        assert f"{18 * ring.NVLS_RATE[generation]:g} GB/s with NVLink {generation}" in text
    assert f"NVLink 4 and at least {ring.NVLS_GPUS[4]} GPUs, or NVLink 5 and at least {ring.NVLS_GPUS[5]}" in text
    assert f"expects {100 * TCP_SHARE:g} % of the slowest" in text
    assert f"`nccl_tests_floor` ({FLOOR})" in text and f"`nccl_tests_over` ({OVER})" in text
    assert f"`nccl_tests_regression_margin` ({MARGIN})" in text
