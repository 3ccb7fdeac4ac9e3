# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: whether driver, CUDA, PyTorch wheel, NCCL and GPUs go together."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils import _compatibility, _python_lock


def _stack(versions: dict[str, Any]) -> _compatibility.Stack:
    return _compatibility.Stack(**{name: str(value or "") for name, value in versions.items()})


def compatibility_problems(
    versions: dict[str, Any], devices: Optional[list[dict[str, Any]]] = None, toolkit_runs: bool = True
) -> list[str]:
    return _compatibility.problems(_stack(versions), devices or [], toolkit_runs)


def compatibility_notes(versions: dict[str, Any]) -> list[str]:
    return _compatibility.notes(_stack(versions))


def compatibility_wheel(lock: str) -> dict[str, str]:
    stack = _compatibility.wheel_stack(_python_lock.requirements(lock))
    return {name: value for name, value in stack._asdict().items() if value}


class FilterModule:
    """The filters, documented beside this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "compatibility_problems": compatibility_problems,
            "compatibility_notes": compatibility_notes,
            "compatibility_wheel": compatibility_wheel,
        }
