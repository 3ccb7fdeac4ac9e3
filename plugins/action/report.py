# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a role's lines to what its host has to report. Documented in the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

FACTS = {"skipped": "gpuops_skipped", "reboot_required": "gpuops_reboot_required", "notes": "gpuops_notes"}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Works on the control node alone."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, arguments = self.validate_argument_spec(
            argument_spec={
                "role": {"type": "str", "required": True},
                "skipped": {"type": "list", "elements": "str", "default": []},
                "reboot_required": {"type": "list", "elements": "str", "default": []},
                "notes": {"type": "list", "elements": "str", "default": []},
            }
        )
        known = (task_vars or {}).get("ansible_facts", {})
        facts = {fact: {**known.get(fact, {}), arguments["role"]: arguments[option]} for option, fact in FACTS.items()}
        result.update(changed=False, ansible_facts=facts)
        return result
