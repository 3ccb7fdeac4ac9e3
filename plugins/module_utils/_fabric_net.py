# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ethernet interfaces from ``/sys/class/net``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from ._pci import entries, integer, normalise, numa_node, read

ETHERNET = "1"  # ARPHRD_ETHER; 32 is IPoIB, 772 the loopback
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


@dataclass(frozen=True)
class Bus:
    """Where a device sits: the sysfs folder of its PCI function, its address, its driver."""

    folder: str
    address: str | None
    driver: str | None

    @property
    def virtual_function(self) -> bool:
        return os.path.exists(os.path.join(self.folder, "physfn"))


def _uevent(folder: str, key: str) -> str | None:
    lines = (read(folder, "uevent") or "").splitlines()
    return next((line[len(key) + 1 :] for line in lines if line.startswith(f"{key}=")), None)


def bus_of(device: str) -> Bus | None:
    """The PCI function behind the ``device`` of an interface or RDMA device, through virtio and sub-functions."""
    if not os.path.isdir(device):
        return None
    folder = os.path.realpath(device)
    parts = folder.split(os.sep)
    places = [place for place, part in enumerate(parts) if _ADDRESS.fullmatch(part)]
    driver_link = os.path.join(device, "driver")
    driver = os.path.basename(os.path.realpath(driver_link)) if os.path.exists(driver_link) else None
    driver = driver or _uevent(device, "DRIVER")
    if places:
        return Bus(os.sep.join(parts[: places[-1] + 1]), normalise(parts[places[-1]]), driver)
    return Bus(folder, normalise(_uevent(device, "PCI_SLOT_NAME")), driver)


def _kind(folder: str, bus: Bus | None) -> str:
    devtype = _uevent(folder, "DEVTYPE")
    for kind, mark in (("bond", "bonding"), ("bridge", "bridge")):
        if devtype == kind or os.path.isdir(os.path.join(folder, mark)):
            return kind
    if devtype == "vlan":
        return "vlan"
    if bus is None:
        return "virtual"
    if _REPRESENTOR.fullmatch(read(folder, "phys_port_name") or ""):
        return "representor"
    return "virtual_function" if bus.virtual_function else "physical"


def _positive(text: str | None) -> int | None:
    """A number that the kernel knows: it says -1, or 4294967295 in old releases, where it does not."""
    number = integer(text)
    return number if number is not None and 0 < number < 2**32 - 1 else None


def _interface(folder: str, name: str) -> dict[str, Any]:
    device = os.path.join(folder, "device")
    bus = bus_of(device)
    carrier = integer(read(folder, "carrier"))  # not readable while the interface is down
    master = os.path.join(folder, "master")
    rdma = entries(device, "infiniband")
    return {
        "name": name,
        "kind": _kind(folder, bus),
        "mac": (read(folder, "address") or "").lower() or None,
        "driver": bus.driver if bus else None,
        "pci": bus.address if bus else None,
        "numa_node": numa_node(bus.folder) if bus else None,
        "speed_mbps": _positive(read(folder, "speed")),
        "mtu": _positive(read(folder, "mtu")),
        "carrier": bool(carrier) if carrier is not None else None,
        "master": os.path.basename(os.path.realpath(master)) if os.path.exists(master) else None,
        "rdma_device": rdma[0] if rdma else None,
    }


def ethernet(sysfs_root: str) -> list[dict[str, Any]]:
    """All Ethernet interfaces: hardware, virtual functions, bonds, VLANs, bridges and other virtual ones."""
    net = os.path.join(sysfs_root, "class/net")
    names = [name for name in entries(net) if read(net, name, "type") == ETHERNET]
    return [_interface(os.path.join(net, name), name) for name in names]
