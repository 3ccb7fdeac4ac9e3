# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers the facts of a host's network for RDMA and Ethernet, and judges its ports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._fabric_net import ethernet
from ._fabric_rdma import rdma

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_LID = (0, 0xFFFF)
FEWEST_PEERS = 3  # ports of equal boards, below which none is taken for the odd one


@dataclass(frozen=True)
class Port:
    """A port with what its device has to say about it."""

    device: dict[str, Any]
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.device['name']}:{self.facts['port']}"

    @property
    def kind(self) -> tuple[str, str] | None:
        """What makes ports comparable; null where the board is not known."""
        board = self.device["board"] or self.device["model"]
        return (board, self.facts["link_layer"]) if board else None


def _problem(code: str, device: str, detail: str) -> dict[str, str]:
    return {"code": code, "device": device, "detail": detail}


def _unwanted(port: Port, ports: list[Port]) -> bool:
    """Whether somebody disabled this Ethernet port because it is not used: not when most of its peers are."""
    if port.facts["link_layer"] != "ethernet" or port.facts["physical_state"] != "Disabled":
        return False
    states = [peer.facts["state"] for peer in ports if peer.kind == port.kind]
    return port.kind is None or len(states) < FEWEST_PEERS or states.count("active") * 2 <= len(states)


def _state(port: Port, ports: list[Port]) -> Iterator[dict[str, str]]:
    facts, device = port.facts, port.device["name"]
    if facts["state"] == "down" and not _unwanted(port, ports):
        yield _problem("port_down", device, f"{port.name} is down, physical state {facts['physical_state']}")
    elif facts["state"] in {"init", "armed"}:
        yield _problem("port_initializing", device, f"{port.name} waits for a subnet manager, state {facts['state']}")
    elif facts["state"] == "active" and facts["link_layer"] == "infiniband" and facts["lid"] in NO_LID:
        yield _problem("no_lid", device, f"{port.name} is active without a LID")


def _rate(port: Port, ports: list[Port]) -> Iterator[dict[str, str]]:
    """An active port that is slower than most on equal boards, or on a single lane."""
    facts, device = port.facts, port.device["name"]
    rate = facts["rate_gbps"]
    if facts["state"] != "active" or rate is None:
        return
    peers = [peer.facts for peer in ports if port.kind is not None and peer.kind == port.kind]
    rates = Counter(peer["rate_gbps"] for peer in peers if peer["state"] == "active" and peer["rate_gbps"] is not None)
    usual, count = rates.most_common(1)[0] if rates else (rate, 0)
    total = sum(rates.values())
    if rate < usual and total >= FEWEST_PEERS and count * 2 > total:
        yield _problem("rate_degraded", device, f"{port.name} runs at {rate:g} Gbit/s, its peers at {usual:g}")
    elif facts["link_layer"] == "infiniband" and facts["lanes"] == 1:
        yield _problem("rate_degraded", device, f"{port.name} runs on one lane, at {rate:g} Gbit/s")


def _pcie(device: dict[str, Any]) -> Iterator[dict[str, str]]:
    pcie = device["pcie"]
    narrow = [
        f"{name} {pcie[name]} where {pcie[f'{name}_max']} is offered"
        for name in ("generation", "width")
        if pcie[name] and pcie[f"{name}_max"] and pcie[name] < pcie[f"{name}_max"]
    ]
    if narrow and not device["virtual_function"]:
        yield _problem("pcie_degraded", device["name"], f"PCIe {', '.join(narrow)} by card and slot")


def _denied(paths: list[str], devices: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    if paths:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        device = next((device["name"] for device in devices if f"/{device['name']}/" in paths[0]), "")
        yield _problem("not_permitted", device, f"{paths[0]}{more} cannot be read")


def gather(sysfs_root: str = "/sys") -> dict[str, Any]:
    """Facts in the form of the contract."""
    denied: list[str] = []
    devices = rdma(sysfs_root, denied)
    interfaces = ethernet(sysfs_root)
    owner = {name: device["name"] for device in devices for port in device["ports"] for name in port["netdevs"]}
    for interface in interfaces:
        interface["rdma_device"] = interface["rdma_device"] or owner.get(interface["name"])
    ports = [Port(device, facts) for device in devices for facts in device["ports"]]
    problems: list[dict[str, str]] = []
    for port in ports:
        problems += [*_state(port, ports), *_rate(port, ports)]
    for device in devices:
        problems += _pcie(device)
    problems += _denied(denied, devices)
    return {"ethernet": interfaces, "rdma": devices, "problems": problems}
