# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name, which looks, and decides about what it saw. Documented there."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkit_differences import differences
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkit_plan import cuda_toolkit_plan


class ActionModule(ActionBase):  # type: ignore[misc]
    """One look at the host; the GPUs' facts and the contents of files stay on the control node."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = dict(self._task.args)
        settings, host = given["settings"], given["host"]
        files = given.get("files") or []
        wanted = {entry["path"]: f"0644 {hashlib.sha256(entry['content'].encode()).hexdigest()}" for entry in files}
        asked = {
            "settings": {key: settings[key] for key in ("version", "source")},
            "host": {"pci_count": host["pci_count"], "gpus": [{}] * len(host["gpus"])},
            "files": [{"path": path} for path in wanted],
        }
        seen = self._execute_module(
            module_name="gpuops.cluster.cuda_toolkit_state", module_args=asked, task_vars=task_vars
        )
        name = (task_vars or {}).get("inventory_hostname", "")
        if seen.get("failed"):
            result.update(seen)
            result["msg"] = f"{name}: {seen.get('msg', 'no message')}"
            return result
        plan = cuda_toolkit_plan(settings, {**host, **seen}, file=given.get("file"))
        result["changed"] = False
        if plan["problems"]:
            # Not all of the plan, which would be printed with it.
            result.update(failed=True, msg=f"{name}: {'; '.join(plan['problems'])}")
            return result
        result.update(plan, interrupted=seen["interrupted"], differs=differences(settings, plan, seen, wanted))
        return result
