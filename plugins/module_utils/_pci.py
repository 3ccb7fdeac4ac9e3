# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA functions on the PCI bus and links of PCI devices, as sysfs shows them, with or without a driver."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA controller, 3D controller
NVSWITCH_CLASS = (
    "0x0680"  # bridge of another kind; host bridges (0x0600) and PCI bridges (0x0604) of Grace are not switches
)
_ADDRESS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])")
# GT/s as the kernel prints it, to the generation of the bus
_GENERATIONS = {
    "2.5": 1,
    "5": 2,
    "5.0": 2,
    "8": 3,
    "8.0": 3,
    "16": 4,
    "16.0": 4,
    "32": 5,
    "32.0": 5,
    "64": 6,
    "64.0": 6,
}
_GENERATIONS.update({"128": 7, "128.0": 7})


def read(*parts: str, denied: list[str] | None = None) -> str | None:
    """Content of a small file of sysfs or /proc without surrounding blanks; null when it cannot be read.

    Paths that may not be read are added to ``denied``.
    """
    path = os.path.join(*parts)
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(65536).strip()
    except PermissionError:
        if denied is not None:
            denied.append(path)
        return None
    except OSError:  # missing, or an attribute that the driver refuses (EINVAL)
        return None


def entries(*parts: str) -> list[str]:
    """Names in a folder, sorted; empty when there is none."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def integer(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None


def normalise(address: str | None) -> str | None:
    """A PCI address in lower case with a domain of at least four digits; null when it is none.

    ``00000000:1B:00.0``, ``0000:1B:00.0`` and ``0:1b:0.0`` are the same address.
    """
    match = _ADDRESS.fullmatch((address or "").strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def find_address(text: str) -> str | None:
    """The first PCI address in a sentence."""
    match = _ADDRESS.search(text)
    return normalise(match.group()) if match else None


def numa_node(folder: str) -> int | None:
    """NUMA node of a device; null where the kernel says -1 (one node, or unknown)."""
    node = integer(read(folder, "numa_node"))
    return node if node is not None and node >= 0 else None


@dataclass
class PciFunction:
    """One function of the bus."""

    address: str
    device_id: str
    pci_class: str
    numa_node: int | None
    cpus: str | None
    lost: bool

    def fact(self) -> dict[str, object]:
        return {
            "address": self.address,
            "device_id": self.device_id,
            "class": self.pci_class,
            "numa_node": self.numa_node,
        }


def _fell_off(folder: str) -> bool:
    """Whether a device has fallen off the bus: its configuration space then reads as ones. What sysfs cached stays."""
    try:
        with open(os.path.join(folder, "config"), "rb") as stream:
            return stream.read(4) == b"\xff" * 4
    except OSError:
        return False


def nvidia_functions(sysfs_root: str) -> tuple[list[PciFunction], int]:
    """GPUs of NVIDIA on the bus in the order of their addresses, and the number of NVSwitches."""
    devices = os.path.join(sysfs_root, "bus/pci/devices")
    gpus: list[PciFunction] = []
    switches = 0
    for name in entries(devices):
        folder = os.path.join(devices, name)
        address = normalise(name)
        if address is None or read(folder, "vendor") != NVIDIA:
            continue
        pci_class = read(folder, "class") or ""
        if pci_class.startswith(GPU_CLASSES):
            device_id = read(folder, "device") or ""
            cpus = read(folder, "local_cpulist") or None
            gpus.append(PciFunction(address, device_id, pci_class, numa_node(folder), cpus, _fell_off(folder)))
        elif pci_class.startswith(NVSWITCH_CLASS):
            switches += 1
    return sorted(gpus, key=lambda gpu: (len(gpu.address), gpu.address)), switches


def _link(folder: str, which: str) -> tuple[int | None, int | None]:
    """Generation and width of the link above a device; ``which`` is current or max."""
    speed = (read(folder, f"{which}_link_speed") or "").split(" ")[0]
    width = integer(read(folder, f"{which}_link_width"))
    return _GENERATIONS.get(speed), width if width is not None and 0 < width <= 32 else None


def least(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def slot(sysfs_root: str, address: str) -> tuple[int | None, int | None]:
    """Generation and width that the port above a device offers; null where no port is shown (virtual machines)."""
    folder = os.path.realpath(os.path.join(sysfs_root, "bus/pci/devices", address))
    return _link(os.path.dirname(folder), "max")


def link(folder: str) -> dict[str, int | None]:
    """Link of a device in the form of the contract. The maxima are what device and slot both offer."""
    generation, width = _link(folder, "current")
    device, port = _link(folder, "max"), _link(os.path.dirname(os.path.realpath(folder)), "max")
    return {
        "generation": generation,
        "generation_max": least(device[0], port[0]),
        "width": width,
        "width_max": least(device[1], port[1]),
    }
