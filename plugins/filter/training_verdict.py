# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of pytorch_env's training stage."""

from __future__ import annotations

from typing import Any, Callable, Optional


def training_unready(*arguments: Any) -> Any:
    from ansible_collections.gpuops.cluster.plugins.module_utils import _training_verdict

    return _training_verdict.unready(*arguments)


def training_verdict(
    run: dict[str, Any],
    names: dict[str, str],
    unready: Optional[dict[str, str]] = None,
    efficiency: float = 0.875,
    data_wait: float = 0.1,
    straggler: float = 1.15,
) -> dict[str, Any]:
    from ansible_collections.gpuops.cluster.plugins.module_utils import _training_judge, _training_verdict

    if unready:
        return _training_verdict.blocked(unready)
    limits = _training_judge.Limits(float(efficiency), float(data_wait), float(straggler))
    return _training_verdict.judge(run, names, limits)


class FilterModule:
    """Filters documented beside this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"training_unready": training_unready, "training_verdict": training_verdict}
