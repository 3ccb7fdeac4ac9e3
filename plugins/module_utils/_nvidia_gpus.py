# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's PCI device numbers say about the driver a host needs: module flavour, branch, fabric manager.

Device numbers grow with the generations; which branch drives which is in _compatibility_data.py.
Turing begins at 1e02, Hopper is 2300 to 23ff, Blackwell begins at 2901.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ._compatibility_data import PCI

FIRST_TURING = 0x1E00  # the first with the processor (GSP) that the open modules need
FIRST_BLACKWELL = 0x2900  # the first that the proprietary modules do not drive
# Boards whose NVSwitches are not on the hosts' PCI bus. Baseboards of eight: fabric manager works with the subnet
# manager NVLSM. Trays of a rack: the switches have managers of their own, and the hosts share memory through IMEX.
BASEBOARDS = frozenset({0x2901, 0x3182})  # B200, B300
TRAYS = frozenset({0x2941, 0x31C2})  # GB200, GB300


@dataclass
class Hardware:
    """NVIDIA functions of a host: device numbers of its GPUs, and of its NVSwitches."""

    gpus: list[int] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)

    @property
    def needs_open(self) -> list[int]:
        return [gpu for gpu in self.gpus if gpu >= FIRST_BLACKWELL]

    @property
    def needs_fabric(self) -> bool:
        return bool(self.switches) or self.needs_nvlsm

    @property
    def needs_nvlsm(self) -> bool:
        return bool(BASEBOARDS.intersection(self.gpus))

    @property
    def needs_imex(self) -> bool:
        return bool(TRAYS.intersection(self.gpus))

    @property
    def needs_proprietary(self) -> list[int]:
        return [gpu for gpu in self.gpus if gpu < FIRST_TURING]


def read_pci(lines: list[str]) -> Hardware:
    """From lines ``/sys/bus/pci/devices/ADDRESS/ATTRIBUTE:VALUE`` of vendor, device and class."""
    functions: dict[str, dict[str, str]] = {}
    for line in lines:
        path, _unused, value = line.rpartition(":")
        address, _unused, attribute = path.rpartition("/")
        functions.setdefault(address, {})[attribute] = value.strip()
    hardware = Hardware()
    for function in functions.values():
        if function.get("vendor") != "0x10de":
            continue
        kind, number = function.get("class", ""), int(function.get("device", "0"), 16)
        if kind.startswith(("0x0300", "0x0302")):
            hardware.gpus.append(number)
        elif kind.startswith("0x0680"):
            hardware.switches.append(number)
    return hardware


def choose_flavour(hardware: Hardware, wanted: str, branch: int, prefers_open: bool) -> tuple[str, list[str]]:
    """The module flavour that drives every GPU, and why there may be none."""
    names = ", ".join(f"10de:{gpu:04x}" for gpu in sorted(set(hardware.needs_open + hardware.needs_proprietary)))
    if hardware.needs_open and hardware.needs_proprietary:
        return "", [f"these GPUs have no flavour of the modules in common ({names}); separate them"]
    if hardware.needs_open:
        needed = "open"
    elif hardware.needs_proprietary:
        needed = "proprietary"
    else:
        return (wanted if wanted != "auto" else "open" if prefers_open and branch >= 560 else "proprietary"), []
    if wanted not in ("auto", needed):
        return "", [f"nvidia_driver_flavour is '{wanted}', but these GPUs work with '{needed}' only ({names})"]
    return needed, []


def branch_problems(hardware: Hardware, branch: int) -> list[str]:
    """GPUs that this branch of the driver does not know yet, or no longer."""
    problems = []
    for gpu in sorted(set(hardware.gpus)):
        row = next(row for row in PCI if gpu >= row.first)
        first, gone = row.driver_from, row.driver_until
        if branch < first:
            problems.append(
                f"GPU 10de:{gpu:04x} needs branch {first} or newer, not {branch}; set nvidia_driver_version"
            )
        elif gone and branch >= gone:
            problems.append(f"GPU 10de:{gpu:04x} needs a branch before {gone}, not {branch}; set nvidia_driver_version")
    return problems
