# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""First look at a host, over its connection alone: no Python is needed there.

Documented in the module of the same name.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils import _host_probe


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the probe's shell script and returns what it saw."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, arguments = self.validate_argument_spec(
            argument_spec={
                "names": {"type": "list", "elements": "str", "default": []},
                "python": {"type": "str", "default": "python3"},
            }
        )
        try:
            result.update(answers=True, reason="", probe=self._look(arguments["python"], arguments["names"]))
        except AnsibleConnectionFailure as error:
            # A result, not an unreachable host, which would end a play with any_errors_fatal before others are heard.
            result.update(answers=False, reason=" ".join(str(error).split()), probe={})
        result["changed"] = False
        return result

    def _look(self, python: str, names: list[str]) -> dict[str, Any]:
        """One look over the connection; AnsibleConnectionFailure where there is none."""
        # The first command pays for opening the connection; the second's time bounds the error of the clock's offset.
        self._low_level_execute_command("true", sudoable=False)
        started = time.time()
        answer = self._low_level_execute_command(_host_probe.command(python, names), sudoable=False)
        ended = time.time()
        return _host_probe.parse(answer.get("stdout", ""), started, ended)
