# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers the facts of a host's network for RDMA and Ethernet, and judges its ports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ._fabric_net import ethernet
from ._fabric_rdma import rdma

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_LID = (0, 0xFFFF)
FEWEST_PEERS = 3  # ports of equal boards, below which none is taken for the odd one


def _problem(code: str, device: str, detail: str) -> dict[str, str]:
    return {"code": code, "device": device, "detail": detail}


def _port_problem(device: dict[str, Any], port: dict[str, Any]) -> dict[str, str] | None:
    """What keeps a port from working. An Ethernet port that was disabled is left alone: somebody did not want it."""
    name = f"{device['name']}:{port['port']}"
    state, physical, layer = port["state"], port["physical_state"], port["link_layer"]
    if state == "down" and not (layer == "ethernet" and physical == "Disabled"):
        return _problem("port_down", device["name"], f"{name} is down, physical state {physical}")
    if state in {"init", "armed"}:
        return _problem("port_initializing", device["name"], f"{name} waits for a subnet manager, state {state}")
    if state == "active" and layer == "infiniband" and port["lid"] in NO_LID:
        return _problem("no_lid", device["name"], f"{name} is active without a LID")
    return None


def _rates(devices: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Active ports on a single lane, or slower than most ports on boards of the same kind."""
    active = [(device, port) for device in devices for port in device["ports"] if port["state"] == "active"]
    for device, port in active:
        name, rate = f"{device['name']}:{port['port']}", port["rate_gbps"]
        if rate is None:
            continue
        kind = (device["board"] or device["model"], port["link_layer"])
        peers = Counter(
            peer["rate_gbps"]
            for owner, peer in active
            if (owner["board"] or owner["model"], peer["link_layer"]) == kind and peer["rate_gbps"] is not None
        )
        usual, count = peers.most_common(1)[0]
        if count * 2 > sum(peers.values()) >= FEWEST_PEERS and rate < usual:
            yield _problem("rate_degraded", device["name"], f"{name} runs at {rate:g} Gbit/s, its peers at {usual:g}")
        elif port["link_layer"] == "infiniband" and port["lanes"] == 1:
            yield _problem("rate_degraded", device["name"], f"{name} runs on one lane, at {rate:g} Gbit/s")


def _pcie(device: dict[str, Any]) -> dict[str, str] | None:
    pcie = device["pcie"]
    for name in ("width", "generation"):
        now, most = pcie[name], pcie[f"{name}_max"]
        if now and most and now < most and not device["virtual_function"]:
            return _problem("pcie_degraded", device["name"], f"PCIe {name} {now} where card and slot offer {most}")
    return None


def gather(sysfs_root: str = "/sys") -> dict[str, Any]:
    """Facts in the form of the contract."""
    denied: list[str] = []
    devices = rdma(sysfs_root, denied)
    interfaces = ethernet(sysfs_root)
    owner = {name: device["name"] for device in devices for port in device["ports"] for name in port["netdevs"]}
    for interface in interfaces:
        interface["rdma_device"] = interface["rdma_device"] or owner.get(interface["name"])
    problems = [_port_problem(device, port) for device in devices for port in device["ports"]]
    problems += [*_rates(devices), *map(_pcie, devices)]
    if denied:
        more = f" and {len(denied) - 1} more" if len(denied) > 1 else ""
        device = next((device["name"] for device in devices if f"/{device['name']}/" in denied[0]), "")
        problems.append(_problem("not_permitted", device, f"{denied[0]}{more} cannot be read"))
    return {"ethernet": interfaces, "rdma": devices, "problems": [problem for problem in problems if problem]}
