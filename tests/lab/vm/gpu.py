# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices that look like an H100 to the guest's firmware, kernel and drivers, and do nothing.

No device of QEMU lets its ids be set from outside. So a copy of the distribution's QEMU is changed in four places, when
a lab wants it: `edu`, an educational device, gets vendor and device id, class and revision of an H100, and its first
register says GH100. udev, nouveau and NVIDIA's own module then behave as with the real card, up to the point where they
talk to it and give up.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from ..paths import LabError

NVIDIA = 0x10DE
H100_SXM5 = 0x2330
REVISION = 0xA1
CLASS_3D = 0x0302
BOOT_0 = 0x180000A1  # the register in which a chip says what it is: GH100, revision a1
FOLDERS = ("/usr/share/qemu", "/usr/share/seabios", "/usr/lib/ipxe/qemu")


def little(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def only(pattern: bytes, program: bytes) -> re.Match[bytes]:
    """The one place that matches; another QEMU may have none, or several."""
    found = list(re.finditer(pattern, program, re.DOTALL))
    if len(found) != 1:
        raise LabError(f"this QEMU's edu device is built in another way ({len(found)} places for {pattern[:8].hex()})")
    return found[0]


def patched(program: bytes) -> bytes:
    """QEMU with an edu device that calls itself H100 SXM5."""
    data = bytearray(program)
    # 1234:11e8, in the device's class: vendor and device id in one word.
    ids = only(re.escape(little(0x1234, 2) + little(0x11E8, 2)), program).start()
    # revision = 0x10; …; class_id = PCI_CLASS_OTHERS
    rest = only(rb"\xc6\x80\xd4\x00\x00\x00\x10.{6,24}?\xba\xff\x00\x00\x00\x66\x89\x90\xd6\x00\x00\x00", program)
    register = only(rb"\xb8\xed\x00\x00\x01", program).start()
    data[ids : ids + 4] = little(NVIDIA, 2) + little(H100_SXM5, 2)
    data[rest.start() + 6] = REVISION
    data[rest.end() - 11 : rest.end() - 9] = little(CLASS_3D, 2)
    data[register + 1 : register + 5] = little(BOOT_0, 4)
    return bytes(data)


def qemu(cache: Path, program: str) -> tuple[str, ...]:
    """The command of a changed copy, made where it is missing; and where it finds its firmware."""
    found = shutil.which(program)
    if not found:
        raise LabError(f"{program} is not installed")
    original = Path(found).read_bytes()
    name = hashlib.sha256(original + Path(__file__).read_bytes()).hexdigest()[:12]
    copy = cache / "vm" / f"qemu-h100-{name}"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        for old in copy.parent.glob("qemu-h100-*"):
            old.unlink()
        unfinished = copy.with_suffix(".new")
        unfinished.write_bytes(patched(original))
        unfinished.chmod(0o755)
        unfinished.replace(copy)
    return (str(copy), *(word for folder in FOLDERS for word in ("-L", folder)))


def devices(count: int) -> tuple[str, ...]:
    return ("-device", "edu") * count
