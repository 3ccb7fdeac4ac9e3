# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the driver there and answering, at one version? Private to this collection."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_packages import WHOLE


def verdict(
    plan: dict[str, Any],
    gpu: dict[str, Any],
    present: list[str],
    reboot: list[str],
    kernel_log: list[str],
    predicted: bool = False,
) -> dict[str, list[str]]:
    """``wrong`` has what is not as it should be, ``skipped`` what could not be asked."""
    installed = {
        name: version for _unused, name, version in (line.split("|") for line in present if line[1:2] in WHOLE)
    }
    missing = ""
    if not plan["resolved"]:
        missing = "apt does not know the driver's packages before their repository is there"
    elif lacking := [name for name, version in plan["packages"].items() if installed.get(name) != version]:
        missing = f"not installed at {plan['release']}: {', '.join(lacking)}"
    if missing:
        return {"wrong": [] if predicted else [missing], "skipped": [f"nvidia-smi not asked: {missing}"]}
    release, answer, loaded = plan["release"], gpu["driver"]["version"], gpu["driver"]["loaded"]
    if reboot:
        return {"wrong": [], "skipped": ["nvidia-smi not judged before the reboot"]}
    if gpu["state"] in ("ok", "degraded"):
        differing = {
            name: value
            for name, value in (("nvidia-smi", answer), ("the module", loaded))
            if value not in (None, release)
        }
        return {
            "wrong": [f"the packages are {release}, {name} says {value}" for name, value in differing.items()],
            "skipped": [],
        }
    if not gpu["pci_count"]:
        return {"wrong": [], "skipped": ["nvidia-smi not judged: there is no NVIDIA GPU on the PCI bus"]}
    said = f"{gpu['state']}: {gpu['reason']}" + "".join(f" / {line}" for line in kernel_log[-5:])
    return {
        "wrong": [f"{gpu['pci_count']} GPUs are on the PCI bus, the driver does not answer ({said})"],
        "skipped": [],
    }
