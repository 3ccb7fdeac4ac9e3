# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the audit compares of one host, as short texts, and what is wrong with it. Private to this collection.

The texts are made on the host, so that the control node holds about a kilobyte a host rather than all facts.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from . import _audit_software as software

if TYPE_CHECKING:
    from collections.abc import Iterable

NONE = software.NONE
# What is compared, in the order in which it is shown.
ITEMS = {
    "os": "Operating system",
    "kernel": "Kernel",
    "gpu_boards": "GPUs on PCI",
    "gpus": "GPUs",
    "gpu_settings": "GPU settings",
    "driver_installed": "Driver installed",
    "driver_loaded": "Driver loaded",
    "fabric_manager": "Fabric manager",
    "cuda_toolkits": "CUDA toolkits",
    "nccl": "NCCL",
    "torch": "PyTorch",
    "torch_nccl": "NCCL of PyTorch",
    "fabric_firmware": "Fabric firmware",
    "network": "Network",
    "slurm": "Slurm",
}
# States in which there are GPUs and the driver does not answer for them.
SILENT = ("no_driver", "driver_not_loaded", "driver_mismatch", "no_answer")


def counted(texts: Iterable[str]) -> str:
    """Equal things once, with how many there are: most frequent first."""
    counts = sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count} x {text}" for text, count in counts) or NONE


def _switch(name: str, on: bool | None) -> str:
    return "" if on is None else f"{name} {'on' if on else 'off'}"


def _settings(device: dict[str, Any]) -> str:
    """What an administrator sets on a GPU and what makes equal GPUs unequal when one is forgotten."""
    power = device["power_limit_w"]
    parts = [
        _switch("ECC", device["ecc"]["enabled"]),
        _switch("MIG", device["mig"]["enabled"]),
        _switch("persistence", device["persistence"]),
        "" if power is None else f"{power:g} W",
    ]
    return ", ".join(part for part in parts if part)


def _gpu_versions(gpu: dict[str, Any]) -> dict[str, str | None]:
    """Null is what the driver did not tell."""
    boards = counted(function["device_id"].replace("0x", "10de:") for function in gpu["pci_devices"])
    if not gpu["devices"]:
        unknown = None if gpu["state"] in SILENT and gpu["pci_count"] else NONE
        return {"gpu_boards": boards, "gpus": unknown, "gpu_settings": unknown}
    settings = [_settings(device) or "unknown" for device in gpu["devices"]]
    return {
        "gpu_boards": boards,
        "gpus": counted(device["name"] or "unknown" for device in gpu["devices"]),
        "gpu_settings": counted(settings) if len(set(settings)) > 1 else None if "unknown" in settings else settings[0],
    }


def _network(fabric: dict[str, Any]) -> str:
    """Ports that work. A RoCE port shows as the Ethernet interface that it is."""
    ports = [port for device in fabric["rdma"] if not device["virtual_function"] for port in device["ports"]]
    links = [
        f"InfiniBand {port['rate_gbps'] or 0:g} Gbit/s"
        for port in ports
        if port["state"] == "active" and port["link_layer"] == "infiniband"
    ]
    for interface in fabric["ethernet"]:
        if interface["kind"] == "physical" and interface["carrier"]:
            speed = f"{interface['speed_mbps'] / 1000:g} Gbit/s " if interface["speed_mbps"] else ""
            links.append(f"Ethernet {speed}MTU {interface['mtu']}")
    return counted(links)


def _firmware(fabric: dict[str, Any]) -> str:
    return counted(
        f"{device['board'] or device['model'] or 'unknown'} {device['firmware'] or '?'}"
        for device in fabric["rdma"]
        if not device["virtual_function"]
    )


def versions(gpu: dict[str, Any], fabric: dict[str, Any], environments: str, root: str = "/") -> dict[str, str | None]:
    """One text for each of ITEMS: "none" where it is known to be absent, null where it is not known."""
    packages = software.packages(root)
    loaded, flavour = gpu["driver"]["loaded"], gpu["driver"]["flavour"]
    toolkits = [f"{one['version']}{' (default)' if one['default'] else ''}" for one in gpu["cuda_toolkits"]]
    found = software.environments(environments)
    return {
        "os": software.system(root),
        "kernel": os.uname().release,
        **_gpu_versions(gpu),
        "driver_installed": software.driver(root, packages["driver"], gpu["driver"]["version"]),
        "driver_loaded": f"{loaded} {flavour}" if loaded and flavour else loaded or NONE,
        "fabric_manager": software.versions(packages["fabric_manager"]),
        "cuda_toolkits": ", ".join(toolkits) or NONE,
        "nccl": software.nccl(root, packages["nccl"]),
        "torch": "; ".join(
            f"{one['name']}: {one['torch'] or 'no torch'}, {'lock ' + one['lock'] if one['lock'] else 'no lock'}"
            for one in found
        )
        or NONE,
        "torch_nccl": "; ".join(f"{one['name']}: {one['nccl']}" for one in found if one["nccl"]) or NONE,
        "fabric_firmware": _firmware(fabric),
        "network": _network(fabric),
        "slurm": software.versions(packages["slurm"]),
    }


def problems(gpu: dict[str, Any], fabric: dict[str, Any]) -> list[dict[str, str]]:
    """What is wrong: {code, device, detail}; device is empty where the whole host is meant."""
    found = []
    if gpu["state"] in SILENT and gpu["pci_count"]:
        found.append({"code": gpu["state"], "device": "", "detail": gpu["reason"]})
    for problem in gpu["problems"]:
        device = "" if problem["device"] is None else f"GPU {problem['device']}"
        found.append({"code": problem["code"], "device": device, "detail": problem["detail"]})
    for problem in fabric["problems"]:
        found.append({"code": problem["code"], "device": str(problem["device"] or ""), "detail": problem["detail"]})
    return found
