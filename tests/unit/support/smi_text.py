# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XML twin of a recording of ``nvidia-smi -q``: the same tree, told by indentation."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

# Keys whose tag is not the key in lower case with underscores, by the section they stand in.
_TAGS = {
    ("", "Driver Version"): "driver_version",
    ("", "CUDA Version"): "cuda_version",
    ("", "Attached GPUs"): "attached_gpus",
    ("", "GPU UUID"): "uuid",
    ("", "MIG Device"): "mig_device",
    ("", "GPU Virtualization Mode"): "gpu_virtualization_mode",
    ("", "Host VGPU Mode"): "host_vgpu_mode",
    ("MIG Mode", "Current"): "current_mig",
    ("MIG Mode", "Pending"): "pending_mig",
    ("ECC Mode", "Current"): "current_ecc",
    ("ECC Mode", "Pending"): "pending_ecc",
    ("", "Index"): "index",
    ("", "GPU Instance ID"): "gpu_instance_id",
    ("", "Compute Instance ID"): "compute_instance_id",
    ("MIG Device", "ECC Errors"): "ecc_error_count",
    ("ECC Errors", "Volatile"): "volatile",
    ("", "Shared FB Memory Usage"): "fb_memory_usage",
    ("", "SRAM Uncorrectable SEC-DED"): "sram_uncorrectable_secded",
    ("PCI", "Bus Id"): "pci_bus_id",
    ("PCI", "GPU Link Info"): "pci_gpu_link_info",
    ("", "PCIe Generation"): "pcie_gen",
    ("PCIe Generation", "Max"): "max_link_gen",
    ("PCIe Generation", "Current"): "current_link_gen",
    ("", "Link Width"): "link_widths",
    ("Link Width", "Max"): "max_link_width",
    ("Link Width", "Current"): "current_link_width",
    ("Retired Pages", "Pending Page Blacklist"): "pending_blacklist",
    ("Remapped Rows", "Correctable Error"): "remapped_row_corr",
    ("Remapped Rows", "Uncorrectable Error"): "remapped_row_unc",
    ("Remapped Rows", "Pending"): "remapped_row_pending",
    ("Remapped Rows", "Remapping Failure Occurred"): "remapped_row_failure",
    ("", "GPU Current Temp"): "gpu_temp",
    ("Utilization", "Gpu"): "gpu_util",
    ("Utilization", "GPU"): "gpu_util",
    ("Power Readings", "Power Limit"): "power_limit",
    ("Clocks Event Reasons", "Idle"): "clocks_event_reason_gpu_idle",
    ("Fabric", "State"): "state",
    ("Fabric", "Status"): "status",
}
_LINE = re.compile(r"(?P<indent> *)(?P<key>[^:]+?)(?: +: (?P<value>.*))?$")
_GPU = re.compile(r"GPU ([0-9A-Fa-f:.]+)$")


def _tag(section: str, key: str) -> str:
    known = _TAGS.get((section, key)) or _TAGS.get(("", key))
    if known:
        return known
    tag = re.sub(r"\W+", "_", key.strip()).strip("_").lower()
    if section.startswith("Clocks Event Reasons") or section == "HW Slowdown":
        return f"clocks_event_reason_{tag}"
    return tag


def xml_of(text: str) -> bytes:
    """The report that ``nvidia-smi -q -x`` would have printed, as far as gpu_facts reads it."""
    out = ['<?xml version="1.0" ?>', "<nvidia_smi_log>"]
    stack: list[tuple[int, str, str]] = []  # indentation, key, tag

    def close(indent: int) -> None:
        while stack and stack[-1][0] >= indent:
            out.append(f"</{stack.pop()[2]}>")

    for line in text.splitlines():
        gpu = _GPU.match(line)
        if gpu:
            close(0)
            out.append(f'<gpu id="{gpu.group(1)}">')
            stack.append((0, "", "gpu"))
            continue
        match = _LINE.match(line.rstrip())
        if match is None or line.startswith("="):
            continue
        indent, key, value = len(match["indent"]), match["key"], match["value"]
        close(indent)
        tag = _tag(stack[-1][1] if stack else "", key)
        if key == "MIG Device":
            out.append("<mig_devices>")
            stack.append((indent, "", "mig_devices"))
        if value is None:
            out.append(f"<{tag}>")
            stack.append((indent, key, tag))
        else:
            out.append(f"<{tag}>{escape(value)}</{tag}>")  # what is indented below a value is its sibling in XML
    close(0)
    text = "\n".join([*out, "</nvidia_smi_log>", ""])
    return text.replace("</mig_devices>\n<mig_devices>\n", "").encode()
