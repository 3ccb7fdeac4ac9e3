# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bus bandwidth a node and a cluster should reach, derived from their facts, with the derivation in words.

GB/s are decimal, one direction, per GPU. The rates are those that NCCL's own topology code assumes; NVLS, which no ring
model covers, is what published runs reach.
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
SHARED = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})  # a rank keeps its own n-th

Figure = dict[str, Any]  # {gbps: float | None, why: str}


def busbw_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth divided by algorithm bandwidth, as nccl-tests defines it. Unknown collectives and one rank: 1."""
    if ranks < 2:
        return 1.0
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in SHARED else 1.0


def wire_share(collective: str, gpus: int, nodes: int) -> float:
    """Bus bandwidth over what a node's network carries for each of its GPUs: the fewer nodes, the more stays inside."""
    if collective != "alltoall" or nodes < 2:
        return 1.0
    return (gpus * nodes - 1) / (gpus * nodes - gpus)


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


def _host_bridge(processor: str) -> Figure:
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
    bridge = _host_bridge(processor)
    if bridge["gbps"] is None:
        return figure(slowest, f"{why}; the ring crosses sockets, {bridge['why']}")
    return figure(min(slowest, bridge["gbps"]), f"{why}; the ring crosses sockets, {bridge['why']}")


def _ring(gpu: dict[str, Any], processor: str) -> tuple[Figure, int, int]:
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


def _nvls(links: int, generation: int, count: int) -> Optional[Figure]:
    if generation not in NVLS_RATE or count < NVLS_GPUS[generation]:
        return None
    value = NVLS_RATE[generation] * links
    seen = "as published runs reach" if links == 18 else f"as published runs with 18 links reach, scaled to {links}"
    return figure(
        value, f"NVLS, reduction inside NVSwitch on NVLink {generation} with {count} GPUs: {value:.0f} GB/s {seen}"
    )


def routable_gids(ports: list[dict[str, Any]]) -> list[int]:
    """Indexes of RoCE v2 GIDs that are not link-local (fe80::)."""
    return [
        int(gid["index"])
        for port in ports
        for gid in port.get("gids") or []
        if "v2" in str(gid.get("type")).lower() and not str(gid.get("gid")).lower().startswith("fe8")
    ]


def _network(gpu: dict[str, Any], fabric: dict[str, Any], only: list[str]) -> Figure:
    """What the node's RDMA ports carry together: those that `only` names, else those beside a GPU, else all."""
    rates: dict[str, float] = {}
    why: dict[str, str] = {}
    roce: dict[str, list[int]] = {}
    for device in fabric.get("rdma") or []:
        ports = [port for port in device.get("ports") or [] if "ACTIVE" in str(port.get("state")).upper()]
        wire = sum(float(port.get("rate_gbps") or 0) for port in ports) / 8
        slot = pcie_rate(device.get("pcie"))
        if wire:
            held = (
                slot is not None and slot < 0.9 * wire
            )  # a card in its intended slot reaches 96 % of the wire: no limit
            rates[device["name"]] = float(slot or 0) if held else wire
            limit = f", held to {slot:g} GB/s by its PCIe slot" if held else ""
            why[device["name"]] = f"{wire * 8:g} Gbit/s{limit}"
            if any(port.get("link_layer") == "ethernet" for port in ports):
                roce[device["name"]] = routable_gids(ports)
    nics = (gpu.get("topology") or {}).get("nics") or []
    near = [nic["name"] for nic in nics if nic["name"] in rates and {"PIX", "PXB"} & set(nic.get("gpus") or [])]
    used = [name for name in (only or near or rates) if name in rates]
    if not used:
        speeds = [
            (int(link.get("speed_mbps") or 0), link["name"])
            for link in fabric.get("ethernet") or []
            if link.get("carrier")
        ]
        wire_text = (
            ""
            if not speeds or not max(speeds)[0]
            else f" (fastest: {max(speeds)[1]}, {max(speeds)[0] / 1000:g} Gbit/s)"
        )
        return {
            **figure(None, f"TCP: no RDMA port is active{wire_text}"),
            "kind": "tcp",
            "nics": 0,
            "rails": {},
            "roce": {},
        }
    kinds = ", ".join(
        f"{sum(why[n] == text for n in used)} x {text}" for text in dict.fromkeys(why[name] for name in used)
    )
    total = figure(sum(rates[name] for name in used), f"NICs {kinds}")
    rails = {name: round(rates[name], 2) for name in used}
    gids = {name: roce[name] for name in used if name in roce}
    return {**total, "kind": "rdma", "nics": len(used), "rails": rails, "roce": gids}


def capability(
    gpu: dict[str, Any], fabric: Optional[dict[str, Any]] = None, processor: str = "", nics: Optional[list[str]] = None
) -> dict[str, Any]:
    """Everything the gate needs to know of one node, small enough to gather from a thousand.

    Returns {state, reason, problems, gpus, product, driver, addresses, labels, mig, ring: {gbps, why},
    peak: {gbps, why}, network: {gbps, why, kind: rdma | tcp, nics, rails: {name: gbps}}}. `peak` is what all_reduce
    reaches inside the node: NVLS where NCCL takes it, else the ring.
    """
    devices = gpu.get("devices") or []
    ring, links, generation = _ring(gpu, processor)
    names = sorted({str(device.get("name")) for device in devices})
    return {
        "state": gpu.get("state") or "no_answer",
        "reason": gpu.get("reason") or "",
        "problems": [f"{p.get('code')}: {p.get('detail') or 'no detail'}" for p in gpu.get("problems") or []],
        "gpus": len(devices) or int(gpu.get("pci_count") or 0),
        "product": ", ".join(names),
        "driver": (gpu.get("driver") or {}).get("version"),
        "addresses": [str(device.get("pci") or "") for device in devices],
        "labels": (gpu.get("topology") or {}).get("gpus") or [],
        "mig": any((device.get("mig") or {}).get("enabled") for device in devices),
        "ring": ring,
        "peak": _nvls(links, generation, len(devices)) or ring,
        "network": _network(gpu, fabric or {}, nics or []),
    }


def _least(nodes: dict[str, dict[str, Any]], key: str) -> Figure:
    """The weakest node's figure; no figure when any node has none."""
    for name, node in nodes.items():
        if node[key]["gbps"] is None:
            return figure(None, f"{name}: {node[key]['why']}")
    name = min(nodes, key=lambda n: float(nodes[n][key]["gbps"]))
    return figure(nodes[name][key]["gbps"], nodes[name][key]["why"])


def _alltoall(ring: Figure, network: Figure, gpus: int, count: int) -> Figure:
    ranks = gpus * count
    share = float(network["gbps"]) / gpus * wire_share("alltoall", gpus, count)
    why = f"{network['why']} = {network['gbps']:g} GB/s over {gpus} GPUs, x ({ranks}-1)/({ranks}-{gpus})"
    if ring["gbps"] is not None and ring["gbps"] < share:
        return figure(ring["gbps"], f"inside a node: {ring['why']} (the network would carry {share:.1f}: {why})")
    return figure(share, why)


def expected(collective: str, nodes: dict[str, dict[str, Any]]) -> Figure:
    """Bus bandwidth that `collective` over all GPUs of `nodes` (name to capability) should reach: {gbps, why}."""
    gpus = min(node["gpus"] for node in nodes.values())
    if len(nodes) == 1:
        return _least(nodes, "peak" if collective == "all_reduce" else "ring")
    network = _least(nodes, "network")
    if network["gbps"] is None:
        return network
    ring = _least(nodes, "ring") if gpus > 1 else figure(None, "one GPU a node")
    if collective == "alltoall":
        return _alltoall(ring, network, gpus, len(nodes))
    if ring["gbps"] is None:
        why = f"{len(nodes)} nodes: {network['why']}"
        return figure(network["gbps"] if gpus == 1 else None, why if gpus == 1 else ring["why"])
    inside, between = f"{ring['why']} = {ring['gbps']:g}", f"{network['why']} = {network['gbps']:g}"
    why = f"{len(nodes)} nodes, the smaller of inside a node ({inside}) and between nodes ({between})"
    return figure(min(ring["gbps"], network["gbps"]), why)
