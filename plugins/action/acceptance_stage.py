# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a stage to the acceptance report on the control node. Documented in the module of the same name."""

from __future__ import annotations

import re
import time
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_stages as stages
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_store, _report_plot
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_publish import publish
from ansible_collections.gpuops.cluster.plugins.modules import acceptance_stage

KINDS = ("node", "gpu", "nic", "path")


def argument_spec() -> dict[str, Any]:
    """The options as the module documents them: one place says them."""
    return _spec(yaml.safe_load(acceptance_stage.DOCUMENTATION)["options"])


def _spec(options: dict[str, Any]) -> dict[str, Any]:
    spec = {}
    for name, option in options.items():
        spec[name] = {key: value for key, value in option.items() if key not in ("description", "suboptions")}
        if "suboptions" in option:
            spec[name]["options"] = _spec(option["suboptions"])
    return spec


def refusal(given: dict[str, Any]) -> str:
    """What the argument spec cannot say; empty when all is well."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", given["name"]) or given["name"] in stages.OWN:
        own = ", ".join(stages.OWN)
        return f"name is '{given['name']}', expected small letters, digits and underscores, none of {own}"
    for one in given["culprits"]:
        if one.get("kind") not in KINDS or not one.get("host") or not one.get("evidence"):
            return f"a culprit is {one}, expected kind ({', '.join(KINDS)}), host and evidence"
    for result in given["results"]:
        for figure in result["figures"]:
            if "name" not in figure or not isinstance(figure.get("value"), (int, float)):
                return f"a figure of '{result['check']}' is {figure}, expected a name and a value that is a number"
    for plot in given["plots"]:
        if problem := _report_plot.problem(plot):
            return f"plot '{plot.get('title', '')}': {problem}"
    return "" if given["results"] else "results is empty, expected at least one check"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Merges one stage and renews the report's four files."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, given = self.validate_argument_spec(argument_spec=argument_spec())
        if problem := refusal(given):
            raise AnsibleActionFail(f"acceptance_stage: {problem}")
        now = _gate_store.stamp(time.time())
        store = _gate_store.Store(given["report_dir"])
        checks = [
            stages.check(one["check"], one["nodes"], one["status"], one["reason"], one["figures"], one["seconds"])
            for one in given["results"]
        ]
        culprits = [
            {key: str(one.get(key) or "") for key in ("kind", "host", "device", "evidence")}
            for one in given["culprits"]
        ]
        added = stages.stage(given["name"], given["title"], checks, given["launches"])
        if given["plots"]:
            added["plots"] = given["plots"]
        report = stages.add(
            store.last() or stages.empty(now),
            added,
            now,
            given["next_action"],
            culprits,
            given["warnings"],
        )
        if not self._task.check_mode:
            publish(store.folder, report)
        status = stages.worst(one["status"] for one in checks)
        page = str(store.folder / "acceptance.html")
        result.update(changed=True, verdict=report["verdict"], status=status, report=page)
        if given["must_pass"] and status not in ("pass", "skipped"):
            result.update(
                failed=True, msg=f"{given['title'] or given['name']}: {status}. {report['next_action']} Report: {page}"
            )
        return result
