# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines whose GPUs the lab can simulate: one table, one row for each."""

from __future__ import annotations

from dataclasses import dataclass, replace

VOLTA, AMPERE, ADA, HOPPER = 5, 7, 8, 9  # as NVML numbers architectures


@dataclass(frozen=True)
class Profile:
    """Equal GPUs of one machine; the defaults are a card on plain PCIe. Addresses are written as the kernel does."""

    name: str
    architecture: int
    compute_capability: str
    device_id: int
    subsystem_id: int
    revision: int
    memory_mib: int
    bar_mib: int  # BAR 1: all memory, rounded up, on data centre cards
    power_limit_w: int
    power_min_w: int
    power_idle_w: int
    clock_sm_mhz: int
    clock_memory_mhz: int
    pcie_generation: int
    vbios: str
    board_part: str
    inforom: str
    addresses: tuple[str, ...]  # of the GPUs; on two sockets the first half belongs to the first
    numa_nodes: int = 2
    mig: bool = False
    nvlink_links: int = 0
    nvlink_version: int = 0
    nvlink_mbps: int = 0  # of one link, as NVML rounds it
    nvswitch_id: int = 0  # 0: the GPUs' links go straight to one another
    nvswitches: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()  # InfiniBand adapters, one beside each GPU
    pcie_width_max: int = 16

    @property
    def count(self) -> int:
        return len(self.addresses)

    def numa_node(self, position: int) -> int:
        return position * self.numa_nodes // self.count


def _buses(*buses: str) -> tuple[str, ...]:
    return tuple(f"0000:{bus}:00.0" for bus in buses)


_FOUR_SLOTS = _buses("18", "3a", "98", "ba")

_H100_SXM = Profile(
    name="NVIDIA H100 80GB HBM3", architecture=HOPPER, compute_capability="9.0",
    device_id=0x2330, subsystem_id=0x16C1, revision=0xA1,
    memory_mib=81559, bar_mib=131072, mig=True,
    power_limit_w=700, power_min_w=200, power_idle_w=70, clock_sm_mhz=1980, clock_memory_mhz=2619,
    vbios="96.00.A5.00.01", board_part="692-2G520-0200-000", inforom="G520.0200.00.05",
    addresses=_FOUR_SLOTS, pcie_generation=5, nvlink_links=18, nvlink_version=4, nvlink_mbps=26562,
)  # fmt: skip
_H200_SXM = replace(
    _H100_SXM, name="NVIDIA H200", device_id=0x2335, subsystem_id=0x18BE,
    memory_mib=143771, bar_mib=262144, power_idle_w=76, clock_memory_mhz=3201,
    vbios="96.00.99.00.01", board_part="692-2G520-0280-001", inforom="G520.0280.00.04",
)  # fmt: skip
_H100_PCIE = replace(
    _H100_SXM, name="NVIDIA H100 PCIe", device_id=0x2331, subsystem_id=0x1626,
    power_limit_w=350, power_idle_w=46, clock_sm_mhz=1755, clock_memory_mhz=1593,
    vbios="96.00.30.00.01", board_part="900-21010-0000-000", inforom="1010.0200.00.02",
    addresses=_buses("41"), numa_nodes=1, nvlink_links=0, nvlink_version=0, nvlink_mbps=0,
)  # fmt: skip
_A100_SXM = Profile(
    name="NVIDIA A100-SXM4-80GB", architecture=AMPERE, compute_capability="8.0",
    device_id=0x20B2, subsystem_id=0x1463, revision=0xA1,
    memory_mib=81920, bar_mib=131072, mig=True,
    power_limit_w=400, power_min_w=100, power_idle_w=58, clock_sm_mhz=1410, clock_memory_mhz=1593,
    vbios="92.00.45.00.03", board_part="692-2G506-0210-002", inforom="G506.0210.00.03",
    addresses=_buses("01", "41", "81", "c1"), pcie_generation=4, nvlink_links=12, nvlink_version=3, nvlink_mbps=25000,
)  # fmt: skip
_L40S = Profile(
    name="NVIDIA L40S", architecture=ADA, compute_capability="8.9",
    device_id=0x26B9, subsystem_id=0x1851, revision=0xA1,
    memory_mib=46068, bar_mib=65536,
    power_limit_w=350, power_min_w=100, power_idle_w=34, clock_sm_mhz=2520, clock_memory_mhz=9001,
    vbios="95.02.66.00.02", board_part="900-2G133-0080-000", inforom="G133.0242.00.03",
    addresses=_FOUR_SLOTS, pcie_generation=4,
)  # fmt: skip
_V100_PCIE = Profile(
    name="Tesla V100-PCIE-32GB", architecture=VOLTA, compute_capability="7.0",
    device_id=0x1DB6, subsystem_id=0x124A, revision=0xA1,
    memory_mib=32768, bar_mib=32768,
    power_limit_w=250, power_min_w=100, power_idle_w=25, clock_sm_mhz=1380, clock_memory_mhz=877,
    vbios="88.00.48.00.02", board_part="900-2G500-0010-000", inforom="G500.0202.00.02",
    addresses=_buses("3b", "d8"), pcie_generation=3,
)  # fmt: skip


def _eight_hopper(board: Profile) -> Profile:
    """Eight of them and four NVSwitches, at the addresses of a DGX H100."""
    return replace(
        board, addresses=_buses("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
        nvswitch_id=0x22A3, nvswitches=_buses("07", "08", "09", "0a"),
        nics=_buses("18", "40", "4f", "5e", "9a", "c0", "ce", "dc"),
    )  # fmt: skip


PROFILES: dict[str, Profile] = {
    "h100x8": _eight_hopper(_H100_SXM),
    "h100x4": _H100_SXM,
    "h100x1": _H100_PCIE,
    "h200x8": _eight_hopper(_H200_SXM),
    "a100x8": replace(  # as in a DGX A100
        _A100_SXM, addresses=_buses("07", "0f", "47", "4e", "87", "90", "b7", "bd"),
        nvswitch_id=0x1AF1, nvswitches=_buses("c4", "c5", "c6", "c7", "c8", "c9"),
        nics=_buses("0c", "12", "4b", "54", "8d", "94", "ba", "cc"),
    ),
    "a100x4": _A100_SXM,
    "l40sx4": _L40S,
    "v100x2": _V100_PCIE,
}  # fmt: skip
