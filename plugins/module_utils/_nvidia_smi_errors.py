# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says around or instead of its report: sentences and exit codes, mapped to states and problems."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._pci import find_address

DRIVER_MISMATCH = "driver_mismatch"
DRIVER_NOT_LOADED = "driver_not_loaded"
NO_DEVICES = "no_devices"  # not a state of the contract: what it means depends on the PCI bus

# Sentences for the whole host. The first that matches wins.
_STATES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), state)
    for pattern, state in (
        (r"version mismatch|mismatch in versions|NVML: Mismatch", DRIVER_MISMATCH),
        (r"couldn'?t communicate with the NVIDIA driver", DRIVER_NOT_LOADED),
        (r"Driver Not Loaded", DRIVER_NOT_LOADED),
        (r"couldn'?t find libnvidia-ml|NVML Shared Library Not Found|libnvidia-ml\S*: cannot open", DRIVER_NOT_LOADED),
        (r"Failed to initialize NVML: (?!.*(GPU is lost|Insufficient Permissions))", DRIVER_NOT_LOADED),
        (r"No devices were found", NO_DEVICES),
    )
)
# Exit codes of nvidia-smi (its manual page), for answers without a sentence that is known.
_EXIT_STATES = {9: DRIVER_NOT_LOADED, 12: DRIVER_NOT_LOADED, 18: DRIVER_MISMATCH, 6: NO_DEVICES}

# Sentences about one GPU, or about all.
_PROBLEMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"info ?ROM is corrupt", "inforom_corrupt"),
        (r"GPU is lost|fallen off the bus|fell off the bus", "gpu_lost"),
        (r"Unable to determine the device handle", "gpu_lost"),
        (r"requires? (a )?reset|GPU has been reset|\bXid\b", "xid"),
        (r"Insufficient Permissions|do not have suf\w+ permissions", "not_permitted"),
    )
)
_EXIT_PROBLEMS = {14: "inforom_corrupt", 15: "gpu_lost", 4: "not_permitted"}
_EXIT_MEANINGS = {
    4: "the user has no permission",
    6: "no devices were found",
    8: "external power cables are not attached properly",
    9: "the driver is not loaded",
    10: "the kernel detected an interrupt issue with a GPU",
    12: "the NVML library could not be found or loaded",
    13: "the NVML library does not implement this function",
    14: "the infoROM is corrupted",
    15: "a GPU has fallen off the bus or is otherwise inaccessible",
    18: "driver and library versions differ",
}
_NVML_VERSION = re.compile(r"NVML library version:?\s*(\d+(?:\.\d+)+)", re.IGNORECASE)


@dataclass(frozen=True)
class Remark:
    """A problem that a sentence or an exit code tells; ``address`` is the PCI address it names, if any."""

    code: str
    detail: str
    address: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What the words around the report mean."""

    state: str | None
    sentence: str
    remarks: tuple[Remark, ...]
    library_version: str | None


def _remarks(lines: list[str], rc: int | None) -> list[Remark]:
    remarks = []
    for line in lines:
        code = next((code for pattern, code in _PROBLEMS if pattern.search(line)), None)
        if code is not None:
            remarks.append(Remark(code, line, find_address(line)))
    code = _EXIT_PROBLEMS.get(rc or 0)
    if code is not None and not any(remark.code == code for remark in remarks):
        remarks.append(Remark(code, exit_sentence(rc)))
    return remarks


def exit_sentence(rc: int | None) -> str:
    """The meaning of an exit code, in one sentence."""
    if rc is None:
        return "nvidia-smi gave no answer"
    if rc < 0:
        return f"nvidia-smi was killed by signal {-rc}"
    meaning = _EXIT_MEANINGS.get(rc)
    return f"nvidia-smi ended with exit code {rc}" + (f": {meaning}" if meaning else "")


def judge(text: str, rc: int | None) -> Verdict:
    """Judge the text around a report, or in place of one, and the exit code."""
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    state, sentence = None, ""
    for pattern, candidate in _STATES:
        sentence = next((line for line in lines if pattern.search(line)), "")
        if sentence:
            state = candidate
            break
    if state is None and rc in _EXIT_STATES:
        state, sentence = _EXIT_STATES[rc], exit_sentence(rc)
    version = _NVML_VERSION.search(text)
    remarks = tuple(_remarks(lines, rc))
    return Verdict(state, sentence or (lines[0] if lines else ""), remarks, version.group(1) if version else None)
