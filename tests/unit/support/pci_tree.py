# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sysfs with PCI functions: by their addresses, or as lspci listed them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LSPCI = re.compile(
    r"(?P<address>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<kind>[^:\[]+?)(?: \[(?P<code>[0-9a-f]{4})\])?: "
    r"(?P<what>.*?)(?: \[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\])?(?: \(rev .*\))?$"
)
# Class codes by the words that lspci has for them, for listings without numbers.
_CLASSES = {
    "3D controller": "0302",
    "VGA compatible controller": "0300",
    "PCI bridge": "0604",
    "Bridge": "0680",
    "Infiniband controller": "0207",
    "Ethernet controller": "0200",
    "USB controller": "0c03",
    "Non-Volatile memory controller": "0108",
}
_VENDORS = (("NVIDIA", "10de"), ("Mellanox", "15b3"))


def add(
    sysfs: Path, address: str, vendor: str = "10de", code: str = "0302", device: str = "2330", **files: str
) -> Path:
    folder = sysfs / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    content = {"vendor": f"0x{vendor}", "class": f"0x{code}00", "device": f"0x{device}", **files}
    for name, text in content.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    return folder


def add_listing(sysfs: Path, listing: str) -> int:
    """Add what lspci printed; returns the number of functions."""
    count = 0
    for line in listing.splitlines():
        match = _LSPCI.match(line)
        assert match is not None, line
        vendor = match["vendor"] or next((code for name, code in _VENDORS if name in match["what"]), "ffff")
        described = re.search(r"Device ([0-9a-f]{4})", match["what"])
        device = match["device"] or (described.group(1) if described else "ffff")
        add(sysfs, match["address"], vendor, match["code"] or _CLASSES.get(match["kind"], "ffff"), device)
        count += 1
    return count
