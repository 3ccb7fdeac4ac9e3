# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a node by the module of the same name, not twice the same, and refuses what cannot work."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible.plugins.action import ActionBase

OWN = ("users", "mode", "address")  # what the other nodes need to know of this one
SAID = ("ansible_facts", "invocation", "warnings", "deprecations")  # by the first task, once


def fingerprint(arguments: dict[str, Any]) -> str:
    """The same for the same question."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()


def refusal(name: str, problems: list[str], others: list[str]) -> str:
    """All that stands in the way, one line each; empty where nothing does."""
    return "\n".join([*(f"{name}: {problem}" for problem in problems), *others])


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the module unless an earlier answer is to the same question."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        seen, refuse = arguments.pop("seen", None) or {}, arguments.pop("refuse", None)
        question = fingerprint(arguments)
        answer = {name: value for name, value in seen.items() if name not in SAID}
        if answer.get("question") != question:
            answer = self._execute_module(
                module_name="gpuops.cluster.ssh_trust_state", module_args=arguments, task_vars=task_vars
            )
        result.update(answer)
        result.update(question=question, own={name: arguments[name] for name in OWN if name in arguments})
        if refuse is not None and not result.get("failed"):
            lines = refusal(arguments["name"], answer["problems"], refuse)
            if lines:
                return {"failed": True, "msg": lines, "problems": answer["problems"]}
        return result
