# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says to the module of the same name who runs it, and judges whether another run of this control node has ended."""

from __future__ import annotations

import getpass
import multiprocessing
import os
import time
from pathlib import PurePath
from typing import Any

from ansible import context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils import _run_lock


def user() -> str:
    """Who typed the command, also behind sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def this_run() -> dict[str, Any]:
    """The fields of a record but its hours. Tasks run in forks of the process that is meant: they differ in nothing."""
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent and parent.pid else os.getpid()
    books = context.CLIARGS.get("args") or ["ansible"]
    playbook = ", ".join(PurePath(book).name for book in ([books] if isinstance(books, str) else books))
    return {
        **_run_lock.control_node(),
        "user": user(),
        "pid": pid,
        "start": _run_lock.started(pid),
        "begin": time.time(),
        "playbook": playbook,
    }


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the module, twice where the first time met a run that has ended."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = {**self._task.args, "run": this_run()}
        try:
            answer = self._module(arguments, task_vars)
            holder = _run_lock.parse(answer.get("holder"))
            if holder and _run_lock.has_ended(holder, arguments["run"]):
                # Another run may have been quicker: only the one that has ended is replaced.
                answer = self._module({**arguments, "gone": _run_lock.identity(holder)}, task_vars)
                holder = _run_lock.parse(answer.get("holder"))
        except AnsibleConnectionFailure:
            # A result, not an unreachable host, which would end a play with any_errors_fatal. The next play meets it.
            result.update(changed=False, answers=False, refusal="")
            return result
        except AnsibleError as error:
            answer, holder = {"failed": True, "msg": " ".join(str(error).split())}, None
        refusal = _run_lock.sentence(holder, time.time()) if holder else ""
        if answer.get("failed"):
            refusal = str(answer.get("msg") or "run_lock failed")
        result.update({**answer, "changed": False, "answers": True, "refusal": refusal})
        return result

    def _module(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module_name="gpuops.cluster.run_lock", module_args=arguments, task_vars=task_vars
        )
        return answer
