# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs a program of a role with the module_utils that it imports. Documented in the module of the same name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_program


class ActionModule(ActionBase):  # type: ignore[misc]
    """Builds the file on the control node and leaves the rest to the copy action."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, arguments = self.validate_argument_spec(
            argument_spec={
                "src": {"type": "str", "required": True},
                "dest": {"type": "path", "required": True},
                "mode": {"type": "str", "default": "0755"},
            }
        )
        main = Path(self._find_needle("files", arguments["src"])).read_text(encoding="utf-8")
        folder = Path(_node_program.__file__).parent
        with tempfile.NamedTemporaryFile(suffix=".pyz") as local:
            local.write(_node_program.archive(main, folder))
            local.flush()
            task = self._task.copy()
            task.args = {
                "src": local.name,
                "dest": arguments["dest"],
                "mode": arguments["mode"],
                "owner": "root",
                "group": "root",
            }
            copy = self._shared_loader_obj.action_loader.get(
                "ansible.legacy.copy",
                task=task,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            result.update(copy.run(task_vars=task_vars))
        result.pop("diff", None)
        return result
