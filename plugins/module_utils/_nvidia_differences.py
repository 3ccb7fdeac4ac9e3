# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the role nvidia_driver has anything to change on a host. Private to this collection.

``plan`` is what _nvidia_plan decided, ``seen`` what the module nvidia_driver_state saw: ``dpkg`` lines, ``files``,
``units``, ``dkms`` and ``gpu_settings``. Whatever is in doubt is a difference: then the role's tasks look themselves.
"""

from __future__ import annotations

import re
from typing import Any

ANSWERS = ("ok", "degraded")


def marks(lines: list[str], plan: dict[str, Any], pinned: bool) -> list[str]:
    """Packages of the family that are to be held, or given back."""
    own = re.compile(rf"([0-9]+:)?{re.escape(plan['release'])}-")
    state = re.compile("i[itW]" if pinned else "h[itW]")
    rows = [line.split("|") for line in lines if state.match(line)]
    return [name for _unused, name, version in rows if own.match(version) or name in plan["packages"]]


def unbuilt(lines: list[str], plan: dict[str, Any], dkms: str) -> list[str]:
    """Kernels that dkms has no module for, where it is dkms that builds it."""
    release = re.escape(plan["release"])
    if not any(re.match(rf".i.*-dkms.*[|]{release}", line) for line in lines):
        return []
    kernels = [re.sub("^linux-headers-", "", name) for name in plan["headers"][:-1]]
    return [k for k in kernels if not re.search(rf"nvidia[^,]*[/,] *{release}, {re.escape(k)},.*: installed", dkms)]


def _modules(plan: dict[str, Any], seen: dict[str, Any], gpu: dict[str, Any]) -> list[str]:
    """What differs on a host whose kernel is its own."""
    found = [f"{name} is not installed" for name in plan["headers"] if name not in plan["installed"]]
    found += [f"dkms has built no module for {kernel}" for kernel in unbuilt(seen["dpkg"], plan, seen["dkms"])]
    loaded = gpu["driver"]["loaded"] or ""
    if plan["nouveau"]:
        found.append("nouveau is loaded")
    if loaded != plan["release"] and (loaded or gpu["pci_count"]):
        found.append(f"the loaded module is {loaded or 'none'}")
    for name in ("nvidia-persistenced", *(["nvidia-fabricmanager"] if plan["fabric"] else [])):
        unit = seen["units"].get(name)
        if unit and not (unit["enabled"] and (unit["active"] or not (loaded and gpu["pci_count"]))):
            found.append(f"{name} is not enabled, or does not run")
    return found


def _settings(settings: dict[str, Any], plan: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """What differs in the settings of the GPUs."""
    if not any(settings["gpu_settings"].values()):
        return ["GPUs are set at each boot"] if plan["gpu_settings"] else []
    asked = seen["gpu_settings"] or {"changed": [], "wrong": [], "waiting": []}
    found = [*asked["changed"], *asked["wrong"]]
    if not seen["units"].get("gpuops-gpu-settings", {}).get("enabled"):
        found.append("gpuops-gpu-settings is not enabled")
    if settings["kernel_modules"] and settings["reboot_allowed"]:
        found += asked["waiting"]
    return found


def differences(
    settings: dict[str, Any],
    plan: dict[str, Any],
    seen: dict[str, Any],
    wanted: dict[str, str],
    gpu: dict[str, Any],
) -> list[str]:
    """Everything that is not as it should be; ``wanted`` is what ``seen["files"]`` should be."""
    if not plan["resolved"]:
        return ["apt does not know its packages"]
    installed = plan["installed"]
    found = [f"{name} {version}" for name, version in plan["packages"].items() if installed.get(name) != version]
    found += [path for path, state in wanted.items() if seen["files"].get(path) != state]
    mark = "is not held" if settings["pinned"] else "is held"
    found += [f"{name} {mark}" for name in marks(seen["dpkg"], plan, settings["pinned"])]
    if settings["kernel_modules"]:
        found += _modules(plan, seen, gpu)
    elif gpu["state"] not in (*ANSWERS, "no_gpu"):
        found.append(f"the driver does not answer ({gpu['state']})")
    return found + _settings(settings, plan, seen)
