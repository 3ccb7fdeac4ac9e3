# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the links inside a node carry: NVLink, PCIe, the link between sockets, and reduction inside NVSwitch.

GB/s are decimal, one direction, per GPU. The rates are those that NCCL's own topology code assumes; NVLS, which no ring
model covers, is what published runs reach. See docs/expectation.md.
"""

from __future__ import annotations

import re
from typing import Any, Optional

NVLINK_RATE = {1: 20.0, 2: 20.0, 3: 20.0, 4: 20.6, 5: 40.1}  # effective GB/s of one link, by NVLink generation
GA102_RATE = 12.0  # NVLink bridge of RTX 3090, A40, A6000, A10-class boards (compute capability 8.6)
PCIE_X16_RATE = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
NVLS_RATE = {4: 480.0 / 18, 5: 842.0 / 18}  # per link; seen with 18 links: 479-482 (Hopper), 838-846 (Blackwell)
NVLS_GPUS = {4: 5, 5: 6}  # least GPUs of a node for which NCCL takes NVLS
FULL_AMPERE = re.compile(r"\bA(100|800|30)\b")

Figure = dict[str, Any]  # {gbps: float | None, why: str}


def figure(gbps: Optional[float], why: str) -> Figure:
    return {"gbps": None if gbps is None else round(gbps, 2), "why": why}


def _links(label: Any) -> int:
    match = re.fullmatch(r"NV(\d+)", str(label))
    return int(match.group(1)) if match else 0


def _ring_exists(neighbours: list[set[int]]) -> bool:
    """Whether one closed path visits every GPU over allowed edges only (two GPUs: one edge is enough)."""
    count = len(neighbours)
    degree = min(len(others) for others in neighbours)
    if count == 2 or degree < 2 or 2 * degree >= count:  # Dirac: half of the others each is enough for a ring
        return degree >= (1 if count == 2 else 2)
    reached = {0}
    while more := set().union(*(neighbours[at] for at in reached)) - reached:
        reached |= more
    if len(reached) < count:
        return False

    def walk(at: int, seen: frozenset[int]) -> bool:
        if len(seen) == count:
            return 0 in neighbours[at]
        return any(walk(after, seen | {after}) for after in sorted(neighbours[at] - seen))

    return walk(0, frozenset({0}))


def host_bridge(processor: str) -> Figure:
    """GB/s between two sockets in one direction, by the processor's name."""
    if re.search(r"AMD|EPYC", processor):
        return figure(16.0, "AMD's link between sockets: 16 GB/s")
    number = re.search(r"\b[3-9](\d)\d\d[A-Z+]*\b", processor)
    if "Xeon" in processor and number:
        generation = int(number.group(1))
        if generation >= 5 or re.search(r"Xeon\S* 6\b", processor):
            return figure(40.0, "Intel's link between sockets, Emerald Rapids or newer: 40 GB/s")
        if generation == 4:
            return figure(22.0, "Intel's link between sockets, Sapphire Rapids: 22 GB/s")
        return figure(10.0, "Intel's link between sockets, Skylake to Ice Lake: 10 GB/s")
    return figure(None, f"no known rate between the sockets of '{processor or 'an unknown processor'}'")


def pcie_rate(pcie: Optional[dict[str, Any]], degraded: bool = False) -> Optional[float]:
    """GB/s of the slot as trained. An idle card lowers its generation: its maximum counts unless degraded."""
    if not pcie:
        return None
    generation = pcie.get("generation" if degraded else "generation_max") or pcie.get("generation")
    width = pcie.get("width") or pcie.get("width_max")
    if generation not in PCIE_X16_RATE or not width:
        return None
    return PCIE_X16_RATE[generation] * int(width) / 16


def _link_rate(generation: Any, name: str) -> Optional[float]:
    if generation == 3 and not FULL_AMPERE.search(name):
        return GA102_RATE
    return NVLINK_RATE.get(generation)


def _pcie_ring(gpu: dict[str, Any], matrix: list[list[Any]], processor: str) -> Figure:
    degraded = {
        problem.get("device") for problem in gpu.get("problems") or [] if problem.get("code") == "pcie_degraded"
    }
    rates = [pcie_rate(device.get("pcie"), device.get("index") in degraded) for device in gpu["devices"]]
    if not rates or None in rates:
        return figure(None, "PCIe: the generation and width of some slot are unknown")
    slowest = min(rate for rate in rates if rate is not None)
    pcie = gpu["devices"][rates.index(slowest)]["pcie"]
    generation = pcie.get("generation_max") or pcie.get("generation")
    why = f"ring over PCIe {generation} x{pcie.get('width')}: {slowest:g} GB/s"
    near = [{j for j, label in enumerate(row) if i != j and label != "SYS"} for i, row in enumerate(matrix)]
    if _ring_exists(near):
        return figure(slowest, why)
    bridge = host_bridge(processor)
    if bridge["gbps"] is None:
        return figure(slowest, f"{why}; the ring crosses sockets, {bridge['why']}")
    return figure(min(slowest, bridge["gbps"]), f"{why}; the ring crosses sockets, {bridge['why']}")


def ring_of(gpu: dict[str, Any], processor: str) -> tuple[Figure, int, int]:
    """The ring inside a node; then, for NVSwitch machines, links per GPU and NVLink generation (else 0, 0)."""
    count = len(gpu.get("devices") or [])
    if count < 2:
        return figure(None, "one GPU: nothing to measure inside the node"), 0, 0
    topology = gpu.get("topology") or {}
    matrix = topology.get("gpus") or []
    if len(matrix) != count:
        return figure(None, "the driver gave no topology matrix, so the paths between GPUs are unknown"), 0, 0
    nvlink = topology.get("nvlink") or {}
    edges = [[_links(label) if i != j else 0 for j, label in enumerate(row[:count])] for i, row in enumerate(matrix)]
    neighbours = [{j for j, links in enumerate(row) if links} for row in edges]
    rate = _link_rate(nvlink.get("generation"), str(gpu["devices"][0].get("name")))
    if not _ring_exists(neighbours):
        return _pcie_ring(gpu, matrix, processor), 0, 0
    if rate is None:
        return figure(None, f"NVLink of generation {nvlink.get('generation')}: its rate is unknown"), 0, 0
    most = max(max(row) for row in edges)
    switch = count > 2 and all(sum(row) > int(nvlink.get("links_per_gpu") or most) for row in edges)
    links = min(max(row) if switch else sum(row) for row in edges)
    way = "NVSwitch" if switch else "direct NVLink"
    why = f"ring over {way}, {links} links a GPU x {rate:g} GB/s (NVLink {nvlink.get('generation')})"
    generation = int(nvlink["generation"]) if switch else 0
    return figure(links * rate, why), links if switch else 0, generation


def nvls(links: int, generation: int, count: int) -> Optional[Figure]:
    if generation not in NVLS_RATE or count < NVLS_GPUS[generation]:
        return None
    value = NVLS_RATE[generation] * links
    seen = "as published runs reach" if links == 18 else f"as published runs with 18 links reach, scaled to {links}"
    return figure(
        value, f"NVLS, reduction inside NVSwitch on NVLink {generation} with {count} GPUs: {value:.0f} GB/s {seen}"
    )
