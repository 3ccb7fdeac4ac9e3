# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: what is wrong with the RDMA ports of a fleet, by comparing its hosts with each other."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rdma_port_problems
short_description: RDMA ports that are not as they must be, or not as the fleet's
version_added: 0.1.0
description:
  - An active InfiniBand port needs a LID; one that stays in Initializing waits for a subnet manager.
  - A port's rate is compared with the majority of the active ports on boards of the same kind.
  - A port that is down is a problem when it is required, or when it is active on all other hosts (at least two).
  - Two hosts have no majority; what differs between them is a note.
  - Firmware that differs from the majority of a board's kind is a note.
positional: _input
options:
  _input:
    description: Facts of M(gpuops.cluster.fabric_facts) by host name.
    type: dict
    required: true
  required:
    description: RDMA devices whose ports must be active, with or without C(:PORT).
    type: list
    elements: str
    default: []
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Judge the ports of two hosts
  ansible.builtin.debug:
    msg: "{{ {'n1': fabric_of_n1, 'n2': fabric_of_n2} | gpuops.cluster.rdma_port_problems }}"
"""

RETURN = r"""
_value:
  description: By host name, the lists C(problems) and C(notes) of sentences.
  type: dict
"""

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

if TYPE_CHECKING:
    from collections.abc import Callable

NO_LID = (0, 65535, None)


class Port(NamedTuple):
    host: str
    device: str
    number: int
    kind: str
    layer: str
    state: str
    physical: str
    rate: float
    lid: Optional[int]

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


def kind_of(device: dict[str, Any]) -> str:
    """The board, by its PSID; where the driver reports none, the device's name stands for it."""
    return str(device.get("board") or device["name"])


def ports_of(host: str, fabric: dict[str, Any]) -> list[Port]:
    return [
        Port(
            *(host, device["name"], port["port"], kind_of(device), str(port.get("link_layer")).lower()),
            *(str(port.get("state")).lower(), str(port.get("physical_state"))),
            *(float(port.get("rate_gbps") or 0), port.get("lid")),
        )
        for device in fabric.get("rdma") or []
        for port in device.get("ports") or []
    ]


def majority(values: list[Any]) -> Any:
    """The value of more than half; None when there is none."""
    if not values:
        return None
    value, count = Counter(values).most_common(1)[0]
    return value if count * 2 > len(values) else None


def judge(port: Port, usual: Callable[[Port], Any], everywhere: bool, required: list[str]) -> str:
    """What is wrong with one port, empty when nothing is."""
    if port.state.startswith("init") and port.layer == "infiniband":
        return f"{port.name} stays in Initializing: no subnet manager answers on its fabric"
    if port.state == "active":
        if port.layer == "infiniband" and port.lid in NO_LID:
            return f"{port.name} is Active without a LID: the subnet manager has not assigned one"
        rate = usual(port)
        if rate is not None and port.rate < rate:
            return f"{port.name} runs at {port.rate:g} Gb/s, other ports of its kind ({port.kind}) at {rate:g}"
        return ""
    state = f"{port.name} is {port.state} ({port.physical})"
    if port.device in required or port.name in required:
        return f"{state} and is in infiniband_ports_required"
    return f"{state}, on all other hosts it is active" if everywhere else ""


def note(port: Port, rates: list[float], active_on: int) -> str:
    """What is worth a word on a port without a problem: without a majority nobody knows which side is wrong."""
    if port.state != "active":
        elsewhere = f"active on {active_on} of the other hosts" if active_on else "not used"
        return f"{port.name} is {port.state} ({port.physical}): {elsewhere}"
    if port.rate < max(rates):
        return f"{port.name} runs at {port.rate:g} Gb/s, others of its kind ({port.kind}) at up to {max(rates):g}"
    return ""


def firmware_notes(fabrics: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    for fabric in fabrics.values():
        for device in fabric.get("rdma") or []:
            seen.setdefault(kind_of(device), []).append(str(device.get("firmware")))
    usual = {kind: majority(versions) for kind, versions in seen.items()}
    return {
        host: [
            f"{d['name']} has firmware {d.get('firmware')}, other boards of its kind ({kind_of(d)}) {usual[kind_of(d)]}"
            for d in fabric.get("rdma") or []
            if usual[kind_of(d)] not in (None, str(d.get("firmware")))
        ]
        for host, fabric in fabrics.items()
    }


def rdma_port_problems(
    fabrics: dict[str, dict[str, Any]], required: Optional[list[str]] = None
) -> dict[str, dict[str, list[str]]]:
    ports = {host: ports_of(host, fabric) for host, fabric in fabrics.items()}
    rates: dict[tuple[str, str], list[float]] = {}
    up: dict[str, int] = {}
    for port in (p for found in ports.values() for p in found if p.state == "active"):
        rates.setdefault((port.kind, port.layer), []).append(port.rate)
        up[port.name] = up.get(port.name, 0) + 1
    usual = {key: majority(values) for key, values in rates.items()}
    firmware = firmware_notes(fabrics)
    result = {}
    for host, found in ports.items():
        problems, notes = [], list(firmware[host])
        for port in found:
            everywhere = len(fabrics) >= 3 and up.get(port.name, 0) == len(fabrics) - 1
            text = judge(port, lambda p: usual.get((p.kind, p.layer)), everywhere, required or [])
            less = note(port, rates.get((port.kind, port.layer), []), up.get(port.name, 0))
            if text:
                problems.append(text)
            elif less:
                notes.append(less)
        result[host] = {"problems": problems, "notes": notes}
    return result


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rdma_port_problems": rdma_port_problems}
