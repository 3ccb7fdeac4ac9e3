# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA devices and their ports from ``/sys/class/infiniband``."""

from __future__ import annotations

import os
import re
from typing import Any

from ._fabric_net import bus_of
from ._pci import entries, integer, link, numa_node, read

_RATE = re.compile(r"(?P<rate>[0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec(?: \((?P<lanes>[0-9]{1,3})X ?(?P<speed>\w+)?\))?")
# Gbit/s of one lane, for kernels that print the name of a speed and no rate.
_SPEEDS = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
_EMPTY_GID = re.compile(r"[0:]*")


def _word(text: str | None) -> str | None:
    """The word of an enumeration such as ``4: ACTIVE``."""
    return (text or "").rsplit(":", maxsplit=1)[-1].strip() or None


def _rate(text: str | None) -> dict[str, Any]:
    """Rate in Gbit/s, lanes and speed of a text such as ``400 Gb/sec (4X NDR)``. A lane without a name is SDR."""
    match = _RATE.match(text or "")
    if match is None:
        return {"rate_gbps": None, "lanes": None, "speed": None}
    lanes = int(match["lanes"]) if match["lanes"] else None
    speed = match["speed"] or ("SDR" if lanes else None)
    rate = float(match["rate"]) or _SPEEDS.get(speed or "", 0.0) * (lanes or 0)
    return {"rate_gbps": rate or None, "lanes": lanes, "speed": speed}


def _gids(folder: str) -> list[dict[str, Any]]:
    """GIDs in use, with their type and interface (RoCE)."""
    found = []
    for name in sorted(entries(folder, "gids"), key=lambda name: int(name) if name.isdecimal() else 0):
        gid = read(folder, "gids", name)
        if not gid or _EMPTY_GID.fullmatch(gid):
            continue
        found.append(
            {
                "index": int(name) if name.isdecimal() else None,
                "gid": gid,
                "type": read(folder, "gid_attrs/types", name) or None,
                "netdev": read(folder, "gid_attrs/ndevs", name) or None,
            }
        )
    return found


def _netdevs(device: str, port: int, gids: list[dict[str, Any]]) -> list[str]:
    """Interfaces of a port: those of its GIDs, and those of its PCI function with the same port number."""
    names = [gid["netdev"] for gid in gids if gid["netdev"]]
    single = len(entries(device, "ports")) == 1
    for name in entries(device, "device/net"):
        if single or integer(read(device, "device/net", name, "dev_port")) == port - 1:
            names.append(name)
    return list(dict.fromkeys(names))


def _port(device: str, number: int, denied: list[str]) -> dict[str, Any]:
    folder = os.path.join(device, "ports", str(number))
    gids = _gids(folder)
    return {
        "port": number,
        "state": (_word(read(folder, "state", denied=denied)) or "").lower() or None,
        "physical_state": _word(read(folder, "phys_state", denied=denied)),
        "link_layer": (read(folder, "link_layer", denied=denied) or "").lower() or None,
        **_rate(read(folder, "rate", denied=denied)),
        "lid": integer(read(folder, "lid", denied=denied)),
        "sm_lid": integer(read(folder, "sm_lid", denied=denied)),
        "netdevs": _netdevs(device, number, gids),
        "gids": gids,
    }


def _device(folder: str, name: str, denied: list[str]) -> dict[str, Any]:
    bus = bus_of(os.path.join(folder, "device"))
    ports = sorted(int(port) for port in entries(folder, "ports") if port.isdecimal())
    return {
        "name": name,
        "model": read(folder, "hca_type") or None,
        "guid": read(folder, "node_guid", denied=denied) or None,
        "firmware": read(folder, "fw_ver", denied=denied) or None,
        "board": read(folder, "board_id") or None,
        "pci": bus.address if bus else None,
        "virtual_function": bus.virtual_function if bus else False,
        "numa_node": numa_node(bus.folder) if bus else None,
        "pcie": link(bus.folder) if bus else dict.fromkeys(("generation", "generation_max", "width", "width_max")),
        "ports": [_port(folder, port, denied) for port in ports],
    }


def _order(name: str) -> list[tuple[int, str]]:
    """Natural order: mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def rdma(sysfs_root: str, denied: list[str]) -> list[dict[str, Any]]:
    """All RDMA devices. Paths that may not be read are added to ``denied``."""
    root = os.path.join(sysfs_root, "class/infiniband")
    return [_device(os.path.join(root, name), name, denied) for name in sorted(entries(root), key=_order)]
