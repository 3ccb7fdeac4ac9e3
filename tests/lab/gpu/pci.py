# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A PCI bus in the kernel's own formats: the devices of a profile, as /sys/bus/pci/devices shows them.

As in sysfs, every device is a directory beneath its root port, and the bus holds links to them, so that the slot's own
link speed and width are found one level up.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .profiles import Profile

NVIDIA = 0x10DE
MELLANOX = 0x15B3
INTEL = 0x8086
DISPLAY_3D, BRIDGE_OTHER, BRIDGE_PCI, INFINIBAND = 0x030200, 0x068000, 0x060400, 0x020700
GIGATRANSFERS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}
EXPRESS_CAPABILITY = 0x60  # where the PCI Express capability lies in the configuration space
CONNECTX = {4: 0x101B, 5: 0x1021}  # ConnectX-6 and -7, by PCIe generation


@dataclass(frozen=True)
class Device:
    """One PCI function."""

    address: str
    vendor: int
    device: int
    subsystem_vendor: int
    subsystem_device: int
    pci_class: int
    revision: int
    numa_node: int
    cpus: str
    generation_max: int
    width_max: int
    generation_now: int | None = None  # of the link, if lower than it could be
    width_now: int | None = None
    lost: bool = False  # fell off the bus: its configuration space reads as ones

    @property
    def generation(self) -> int:
        return self.generation_now or self.generation_max

    @property
    def width(self) -> int:
        return self.width_now or self.width_max

    def config(self) -> bytes:
        """The 256 bytes of configuration space that lspci reads."""
        if self.lost:
            return b"\xff" * 256
        space = bytearray(256)
        bridge = self.pci_class == BRIDGE_PCI
        struct.pack_into("<HHHH", space, 0x00, self.vendor, self.device, 0x0406, 0x0010)  # memory, master; capabilities
        struct.pack_into("<B", space, 0x08, self.revision)
        space[0x09:0x0C] = self.pci_class.to_bytes(3, "little")
        space[0x0E] = 1 if bridge else 0
        if not bridge:
            struct.pack_into("<HH", space, 0x2C, self.subsystem_vendor, self.subsystem_device)
        space[0x34] = EXPRESS_CAPABILITY
        struct.pack_into("<BBH", space, EXPRESS_CAPABILITY, 0x10, 0, 0x42 if bridge else 0x02)
        struct.pack_into("<I", space, EXPRESS_CAPABILITY + 0x0C, self.generation_max | self.width_max << 4)
        struct.pack_into("<H", space, EXPRESS_CAPABILITY + 0x12, self.generation | self.width << 4)
        return bytes(space)

    def files(self) -> dict[str, bytes]:
        """Name and content of the device's files in sysfs."""
        base, sub, interface = self.pci_class >> 16, self.pci_class >> 8 & 0xFF, self.pci_class & 0xFF
        lines = {
            "vendor": f"{self.vendor:#06x}",
            "device": f"{self.device:#06x}",
            "subsystem_vendor": f"{self.subsystem_vendor:#06x}",
            "subsystem_device": f"{self.subsystem_device:#06x}",
            "class": f"{self.pci_class:#08x}",
            "revision": f"{self.revision:#04x}",
            "irq": "0",
            "enable": "1",
            "numa_node": str(self.numa_node),
            "local_cpulist": self.cpus,
            "current_link_speed": f"{GIGATRANSFERS[self.generation]} GT/s PCIe",
            "max_link_speed": f"{GIGATRANSFERS[self.generation_max]} GT/s PCIe",
            "current_link_width": str(self.width),
            "max_link_width": str(self.width_max),
            "modalias": f"pci:v{self.vendor:08X}d{self.device:08X}"
            f"sv{self.subsystem_vendor:08X}sd{self.subsystem_device:08X}bc{base:02x}sc{sub:02x}i{interface:02x}",
            "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
            "uevent": f"PCI_CLASS={self.pci_class:X}\nPCI_ID={self.vendor:04X}:{self.device:04X}\n"
            f"PCI_SUBSYS_ID={self.subsystem_vendor:04X}:{self.subsystem_device:04X}\nPCI_SLOT_NAME={self.address}",
        }
        return {name: f"{text}\n".encode() for name, text in lines.items()} | {"config": self.config()}


def devices(
    profile: Profile, cpus: list[str], faults: Mapping[str, Mapping[int, int]], nics: bool = False
) -> list[Device]:
    """GPUs, NVSwitches and (if wanted) InfiniBand adapters; `cpus` holds one CPU list for each NUMA node."""
    found = []
    for position, address in enumerate(profile.addresses):
        node = profile.numa_node(position)
        found.append(
            Device(
                address,
                NVIDIA,
                profile.device_id,
                NVIDIA,
                profile.subsystem_id,
                DISPLAY_3D,
                profile.revision,
                node,
                cpus[node],
                profile.pcie_generation,
                profile.pcie_width_max,
                generation_now=faults.get("pcie_generation_now", {}).get(position),
                width_now=faults.get("pcie_width", {}).get(position),
                lost=position in faults.get("gpu_lost", {}),
            )
        )
    for address in profile.nvswitches:
        switch = profile.nvswitch_id
        found.append(Device(address, NVIDIA, switch, NVIDIA, switch, BRIDGE_OTHER, 0xA1, 0, cpus[0], 2, 2))
    for position, address in enumerate(profile.nics if nics else ()):
        node, generation = profile.numa_node(position), profile.pcie_generation
        model = CONNECTX[generation]
        found.append(
            Device(address, MELLANOX, model, MELLANOX, 0x0041, INFINIBAND, 0, node, cpus[node], generation, 16)
        )
    return found


def root_port(device: Device) -> Device:
    """The slot that a device sits in: it offers what the device could use."""
    bus = int(device.address.split(":")[1], 16)
    address = f"0000:{bus - 1:02x}:01.0" if bus else "0000:00:01.0"
    return replace(
        device,
        address=address,
        vendor=INTEL,
        device=0x352A,
        subsystem_vendor=INTEL,
        subsystem_device=0,
        pci_class=BRIDGE_PCI,
        revision=0x04,
        lost=False,
    )


def write(directory: Path, bus: list[Device], seen_as: str) -> None:
    """Write the devices beneath `directory/devices` and the links to them into `directory/bus`.

    Files are rewritten in place, so a running node sees the change. `seen_as` is where the node finds `directory`.
    """
    (directory / "bus").mkdir(parents=True, exist_ok=True)
    for device in bus:
        port = root_port(device)
        root = f"devices/pci{port.address[:7]}"
        for path, one in ((f"{root}/{port.address}", port), (f"{root}/{port.address}/{device.address}", device)):
            (directory / path).mkdir(parents=True, exist_ok=True)
            for name, content in one.files().items():
                (directory / path / name).write_bytes(content)
            link = directory / "bus" / one.address
            if not link.is_symlink():
                link.symlink_to(f"{seen_as}/{path}")
