# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which GPU architectures nccl-tests is compiled."""

from __future__ import annotations

import re
from typing import Any, Optional

# Compute capability by what gpu_facts calls the architecture; the first name that matches decides.
CAPABILITIES = {
    "Maxwell": [("", 52)],
    "Pascal": [(r"P100", 60), ("", 61)],
    "Volta": [("", 70)],
    "Turing": [("", 75)],
    "Ampere": [(r"\bA(100|800|30)\b", 80), (r"Orin", 87), ("", 86)],
    "Ada": [("", 89)],
    "Hopper": [("", 90)],
    "Blackwell": [(r"B300", 103), (r"B[12]00", 100), (r"GB10\b", 121), (r"Thor", 110), ("", 120)],
}


def compute_capability(device: dict[str, Any]) -> Optional[int]:
    """90 for an H100; null where the architecture is unknown."""
    architecture = str(device.get("architecture") or "").split(" ", maxsplit=1)[0]
    for pattern, capability in CAPABILITIES.get(architecture, []):
        if re.search(pattern, str(device.get("name") or "")):
            return capability
    return None


def gencode(devices: list[dict[str, Any]], nvcc: str = "", only: Optional[list[str]] = None) -> dict[str, Any]:
    """NVCC_GENCODE for all devices of the fleet.

    nvcc is what `nvcc --list-gpu-arch` printed (empty: not asked), `only` names capabilities to use instead.
    Returns {flags, problem}; problem is a sentence when a GPU is unknown or newer than the toolkit.
    """
    wanted: set[int] = {int(number) for number in only or []}
    for device in [] if wanted else devices:
        capability = compute_capability(device)
        if capability is None:
            name = f"{device.get('name')} ({device.get('architecture')})"
            return {
                "flags": "",
                "problem": f"the compute capability of {name} is unknown: set nccl_tests_cuda_architectures",
            }
        wanted.add(capability)
    known = {int(number) for number in re.findall(r"compute_(\d+)\b", nvcc)}
    missing = sorted(wanted - known) if known else []
    if missing:
        kind = "newer" if missing[-1] > max(known) else "older"
        listed = ", ".join(map(str, sorted(known)))
        return {"flags": "", "problem": f"sm_{missing[-1]} is {kind} than what this nvcc knows ({listed})"}
    return {"flags": " ".join(f"-gencode=arch=compute_{n},code=sm_{n}" for n in sorted(wanted)), "problem": ""}
