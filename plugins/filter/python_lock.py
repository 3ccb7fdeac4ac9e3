# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters over the text of a lock file."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.gpuops.cluster.plugins.module_utils import _python_lock


class FilterModule:
    """python_lock_problems and python_lock_versions, documented beside this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"python_lock_problems": _python_lock.problems, "python_lock_versions": _python_lock.requirements}
