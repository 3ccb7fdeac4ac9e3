# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a fleet on the control node, prints the table and writes the report.

Documented in the module of the same name.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import yaml
from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpuops.cluster.plugins.module_utils import _audit_html, _audit_merge, _audit_text, _gate_store
from ansible_collections.gpuops.cluster.plugins.modules import audit_report

display = Display()
COLOURS = {
    "clean": constants.COLOR_OK,
    "problem": constants.COLOR_ERROR,
    "drift": constants.COLOR_CHANGED,
    "absent": constants.COLOR_UNREACHABLE,
    "usual": None,
}
NOTHING = ("", "none")  # an empty text, and what the documentation calls the default
FAIL_ON = {"drift": "drift", "health": "unhealthy"}  # word of fail_on: what is counted


def argument_spec() -> dict[str, Any]:
    """The options as the module documents them: one place says them."""
    options = yaml.safe_load(audit_report.DOCUMENTATION)["options"]
    return {name: {k: v for k, v in spec.items() if k != "description"} for name, spec in options.items()}


def kinds_of(hosts: Any, groups: dict[str, Any], kinds: list[str]) -> dict[str, str]:
    """By host: the first of `kinds` that it is in. Kinds keep their order."""
    found: dict[str, str] = {}
    for kind in kinds:
        for host in groups.get(kind, []):
            if host in hosts:
                found.setdefault(host, kind)
    return found


class ActionModule(ActionBase):  # type: ignore[misc]
    """Works on the control node alone."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, options = self.validate_argument_spec(argument_spec=argument_spec())
        ignore, fail_on = (
            [word.strip() for word in options[name] if word.strip() not in NOTHING] for name in ("ignore", "fail_on")
        )
        wrong = [f"audit_ignore: {why}" for why in _audit_merge.refused(ignore)]
        wrong += [f"audit_fail_on: '{word}' is neither drift nor health" for word in fail_on if word not in FAIL_ON]
        if wrong:
            return {**result, "failed": True, "msg": "; ".join(wrong)}
        if options["hosts"] is None:
            return {**result, "changed": False}
        kinds = kinds_of(options["hosts"], (task_vars or {}).get("groups", {}), options["kinds"])
        report = _audit_merge.document(
            options["hosts"], kinds, options["gpu_hosts"], ignore, _gate_store.stamp(time.time())
        )
        folder = Path(options["report_dir"])
        _gate_store.write(folder / "audit.json", json.dumps(report, indent=1) + "\n")
        _gate_store.write(folder / "audit.html", _audit_html.page(report))
        for line, colour in _audit_text.lines(report):
            display.display(line, color=COLOURS[colour])
        display.display(f"report: {folder / 'audit.html'} and audit.json")
        result.update(
            changed=False, verdict=report["verdict"], counts=report["counts"], report=str(folder / "audit.html")
        )
        found = [word for word in dict.fromkeys(fail_on) if report["counts"][FAIL_ON[word]]]
        if found:
            result.update(failed=True, msg=f"audit_fail_on {', '.join(found)}: {report['summary']}")
        return result
