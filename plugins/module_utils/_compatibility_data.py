# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver, CUDA, NCCL, PyTorch wheel and GPU go together: the numbers, and nothing else.

Everything that compares versions reads them here (see _compatibility.py). Sources:

- CUDA Toolkit Release Notes of 11.8, 12.8, 12.9, 13.0 and 13.1, "CUDA Toolkit and Corresponding Driver Versions" and
  "Deprecated Architectures"; from 13.2 on the driver's number in the names of NVIDIA's local repositories.
- CUDA Compatibility, "Minor Version Compatibility", table of driver version ranges.
- NVIDIA's release notes and README of the driver, "Supported NVIDIA GPU Products"; the PCI ID database for numbers.
- PyTorch's RELEASE.md, "Release Compatibility Matrix" and "PyTorch CUDA Support Matrix", and the announcement
  that removed Maxwell and Pascal from builds for CUDA 12.8.
- NCCL Release Notes, 2.15 (Hopper), 2.16 (CUDA 12), 2.25 (Blackwell), 2.27.7 (CUDA 13).
"""

from __future__ import annotations

from typing import NamedTuple

# Release of CUDA: the oldest driver that comes with it, and runs everything that it makes.
CUDA = {
    "11.0": "450.51.05",
    "11.1": "455.32",
    "11.2": "460.32.03",
    "11.3": "465.19.01",
    "11.4": "470.42.01",
    "11.5": "495.29.05",
    "11.6": "510.39.01",
    "11.7": "515.43.04",
    "11.8": "520.61.05",
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
    "13.2": "595.45.04",
    "13.3": "610.43.02",
}
# Major release of CUDA: the oldest driver that runs programs of any of its minor releases, if they hold code for the
# very GPU ("minor version compatibility": what would have to be compiled at run time, PTX, is not).
CUDA_MAJOR = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# Branches of the driver that are maintained for servers, besides the ones above.
BRANCHES = (450, 470, 510, 515, 525, 535, 550, 560, 570, 575, 580, 590, 595, 610)
# The driver of a distribution, where no branch is named.
DISTRIBUTION_DRIVERS = {"debian 12": "535", "debian 13": "550"}


class Gpu(NamedTuple):
    """A kind of GPU. An until is the first release that drives it, or compiles for it, no longer; empty: none."""

    architecture: str  # as gpu_facts names it
    product: str  # pattern in the product's name; the first row that matches counts
    capability: str
    driver_from: int
    driver_until: int
    cuda_from: str
    cuda_until: str
    nccl_from: str


GPUS = (
    Gpu("Maxwell", "", "5.2", 450, 590, "11.0", "13.0", "2.0"),
    Gpu("Pascal", "P100", "6.0", 450, 590, "11.0", "13.0", "2.0"),
    Gpu("Pascal", "", "6.1", 450, 590, "11.0", "13.0", "2.0"),
    Gpu("Volta", "", "7.0", 450, 590, "11.0", "13.0", "2.0"),
    Gpu("Turing", "", "7.5", 450, 0, "11.0", "", "2.3"),
    Gpu("Ampere", r"\bA(100|800|30)\b", "8.0", 450, 0, "11.0", "", "2.7"),
    Gpu("Ampere", "Orin", "8.7", 510, 0, "11.4", "", "2.7"),
    Gpu("Ampere", "", "8.6", 470, 0, "11.1", "", "2.8"),
    Gpu("Ada", "", "8.9", 525, 0, "11.8", "", "2.15"),
    Gpu("Hopper", "", "9.0", 525, 0, "11.8", "", "2.15"),
    Gpu("Blackwell", r"B300", "10.3", 580, 0, "12.9", "", "2.25"),
    Gpu("Blackwell", r"B[12]00", "10.0", 570, 0, "12.8", "", "2.25"),
    Gpu("Blackwell", r"GB10\b", "12.1", 580, 0, "12.9", "", "2.25"),
    Gpu("Blackwell", "", "12.0", 570, 0, "12.8", "", "2.25"),
)


class Pci(NamedTuple):
    """PCI device numbers from this one on, to the next row: kind of GPU, first branch that drives it, and the branch
    from which it is driven no longer (0: none)."""

    first: int
    architecture: str
    driver_from: int
    driver_until: int


# Newest first. Device numbers grow with the generations.
PCI = (
    Pci(0x3180, "Blackwell", 580, 0),  # Blackwell Ultra
    Pci(0x2900, "Blackwell", 570, 0),
    Pci(0x2600, "Ada", 525, 0),
    Pci(0x2300, "Hopper", 525, 0),
    Pci(0x2200, "Ampere", 470, 0),
    Pci(0x2080, "Ampere", 450, 0),  # A100, A30
    Pci(0x1E00, "Turing", 450, 0),
    Pci(0x1D80, "Volta", 0, 590),
    Pci(0x15F0, "Pascal", 0, 590),
    Pci(0x0000, "Maxwell", 0, 590),
)


class Wheel(NamedTuple):
    """PyTorch's wheels for one release of CUDA, in some releases of PyTorch: the capabilities they hold code for."""

    cuda: str
    torch_from: str
    torch_until: str
    lowest: str
    highest: str


# Code for 8.6 runs on 8.9, for 10.0 on 10.3: the same major number, at least that minor.
WHEELS = (
    Wheel("11.7", "1.13", "2.1", "3.7", "8.6"),
    Wheel("11.8", "2.0", "2.8", "5.0", "9.0"),
    Wheel("12.1", "2.1", "2.6", "5.0", "9.0"),
    Wheel("12.4", "2.4", "2.7", "5.0", "9.0"),
    Wheel("12.6", "2.6", "", "5.0", "9.0"),
    Wheel("12.8", "2.9", "2.11", "7.0", "12.0"),
    Wheel("12.8", "2.7", "", "7.5", "12.0"),
    Wheel("12.9", "2.8", "2.9", "7.5", "12.0"),
    Wheel("13.0", "2.9", "", "7.5", "12.0"),
    Wheel("13.2", "2.12", "", "7.5", "12.0"),
)
# Major release of CUDA: the first NCCL that is built for it.
NCCL = {11: "2.7", 12: "2.16", 13: "2.27.7"}
