# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA kernel module that is loaded, as the kernel tells it."""

from __future__ import annotations

import re

from ._pci import read

_VERSION = re.compile(r"\b(\d{3}(?:\.\d+){1,2})\b")


def loaded_driver(proc_root: str, sysfs_root: str) -> tuple[str | None, str | None]:
    """Version and flavour (open or proprietary) of the loaded module; null where it is not loaded or does not tell."""
    banner = (read(proc_root, "driver/nvidia/version") or "").split("\n")[0]
    match = _VERSION.search(banner)
    if match is None:
        return read(sysfs_root, "module/nvidia/version") or None, None
    return match.group(1), "open" if "open kernel module" in banner.lower() else "proprietary"
