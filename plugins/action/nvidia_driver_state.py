# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name, which looks, and decides about what it saw. Documented there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_program, _nvidia_plan
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_differences import differences

MODES = {"file": "0644", "directory": "0755"}


class ActionModule(ActionBase):  # type: ignore[misc]
    """One look at the host; files are compared by their checksums, so that no key leaves the control node."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = dict(self._task.args)
        files = given.get("files") or []
        wanted = {entry["path"]: self._wanted(entry) for entry in files if entry.get("state") != "seen"}
        seen = self._execute_module(
            module_name="gpuops.cluster.nvidia_driver_state",
            module_args={**given, "files": [{"path": entry["path"]} for entry in files]},
            task_vars=task_vars,
        )
        name = (task_vars or {}).get("inventory_hostname", "")
        if seen.get("failed"):
            result.update(seen)
            result["msg"] = f"{name}: {seen.get('msg', 'no message')}"
            return result
        settings, gpu = given["settings"], given["gpu"]
        host = {key: given[key] for key in ("distribution", "kernel")}
        plan = _nvidia_plan.plan(settings, {**host, "probe": seen["probe"], "madison": seen["madison"]})
        result["changed"] = False
        if plan["problems"]:
            # Not all of the plan, which would be printed with it.
            msg = f"{name}: {'; '.join(plan['problems'])}"
            result.update(failed=True, msg=msg, release=plan.get("release", ""))
            return result
        seen["dpkg"] = [line.partition(" ")[2] for line in seen["probe"] if line.startswith("dpkg ")]
        differs = differences(settings, plan, seen, wanted, gpu)
        asked = seen["gpu_settings"]
        as_wanted = asked is not None and not differs
        result.update(
            plan,
            differs=differs,
            files={entry["path"]: seen["files"][entry["path"]] for entry in files if entry.get("state") == "seen"},
            gpus_set=as_wanted,
            reboot=[],
            waiting=asked["waiting"] if as_wanted else [],
        )
        return result

    def _wanted(self, entry: dict[str, Any]) -> str:
        """What the module should see of a file; never right where the control node has no such file."""
        state = entry.get("state", "file")
        if state == "absent":
            return ""
        mode = entry.get("mode") or MODES[state]
        if state == "directory":
            return f"{mode} directory"
        try:
            content = self._content(entry)
        except (AnsibleError, OSError) as error:
            return str(error)
        return f"{mode} {hashlib.sha256(content).hexdigest()}"

    def _content(self, entry: dict[str, Any]) -> bytes:
        if entry.get("program"):
            main = Path(self._find_needle("files", entry["program"])).read_text(encoding="utf-8")
            return _node_program.archive(main, Path(_node_program.__file__).parent)
        if entry.get("src"):
            # Out of a vault, if it is in one.
            return Path(self._loader.get_real_file(self._find_needle("files", entry["src"]))).read_bytes()
        return str(entry.get("content", "")).encode()
