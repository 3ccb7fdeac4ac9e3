# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters over the text of a lock file."""

from __future__ import annotations

import re
from typing import Any, Callable

from ansible_collections.gpuops.cluster.plugins.module_utils import _compatibility, _python_lock


def _cuda(variant: str) -> tuple[int, ...]:
    """(12, 6) of cu126; what names no CUDA, such as cpu, comes last."""
    match = re.fullmatch(r"cu(\d+)(\d)", variant)
    return (int(match[1]), int(match[2])) if match else (0,)


def _unfit(lock: str, gpu: dict[str, Any]) -> list[str]:
    """Why an environment of this lock would not run on a host with these GPUs."""
    stack = _compatibility.wheel_stack(_python_lock.requirements(lock))
    if not stack.wheel:
        return ["it is for CPUs"] if gpu.get("count") else []
    if not gpu.get("count"):
        return [f"no GPU answers ({gpu.get('state')})"]
    return _compatibility.problems(stack._replace(driver=str(gpu["driver"]["version"] or "")), gpu["devices"])


def python_lock_variant(locks: dict[str, str], gpus: dict[str, dict[str, Any]]) -> dict[str, Any]:
    waits = [host for host, gpu in gpus.items() if gpu.get("pci_count") and not gpu.get("count")]
    whys = {
        variant: [f"{host}: {problem}" for host, gpu in gpus.items() for problem in _unfit(locks[variant], gpu)]
        for variant in sorted(locks, key=_cuda, reverse=True)
    }
    fitting = [variant for variant, why in whys.items() if not why]
    said = "; ".join(f"{variant}: {why[0]}" for variant, why in whys.items() if why)
    return {"variant": fitting[0] if fitting and not waits else "", "refused": said, "waits": waits}


class FilterModule:
    """Filters documented beside this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "python_lock_problems": _python_lock.problems,
            "python_lock_variant": python_lock_variant,
            "python_lock_versions": _python_lock.requirements,
        }
