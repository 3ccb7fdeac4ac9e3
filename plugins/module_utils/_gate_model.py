# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bus bandwidth a node and a cluster should reach, derived from their facts, with the derivation in words.

GB/s are decimal, one direction, per GPU. See docs/expectation.md.
"""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils._gate_ring import Figure, figure, nvls, pcie_rate, ring_of

SHARED = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})  # a rank keeps its own n-th


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
            # A card in its intended slot reaches 96 % of the wire, which is no limit.
            held = slot is not None and slot < 0.9 * wire
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
    ring, links, generation = ring_of(gpu, processor)
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
        "peak": nvls(links, generation, len(devices)) or ring,
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
