# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives the module of the same name, where it is documented, the digests of what files should hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_program

SOURCES = ("content", "src", "program")


def digest(wanted: dict[str, Any], find: Callable[[str], str]) -> dict[str, Any]:
    """A file as the module wants it: what it should hold is replaced by its digest."""
    kept = {key: value for key, value in wanted.items() if key not in SOURCES}
    if wanted.get("program"):
        main = Path(find(wanted["program"])).read_text(encoding="utf-8")
        content = _node_program.archive(main, Path(_node_program.__file__).parent)
    elif wanted.get("src"):
        content = Path(find(wanted["src"])).read_bytes()
    elif wanted.get("content") is not None:
        content = str(wanted["content"]).encode("utf-8", "surrogateescape")
    else:
        return kept
    return {**kept, "sha256": hashlib.sha256(content).hexdigest()}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Reads files on the control node and leaves the rest to the module."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        files = [digest(wanted, lambda name: str(self._find_needle("files", name))) for wanted in self._files()]
        arguments = {**self._task.args, "files": files}
        result.update(
            self._execute_module(module_name="gpuops.cluster.drift", module_args=arguments, task_vars=task_vars)
        )
        return result

    def _files(self) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = self._task.args.get("files") or []
        return files
