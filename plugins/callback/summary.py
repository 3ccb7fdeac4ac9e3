# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints, at the end of a run, what each host went through: changed, skipped and why, reboot required."""

from __future__ import annotations

DOCUMENTATION = r"""
name: summary
type: aggregate
short_description: Table of what changed, what was skipped and why, and which hosts wait for a reboot
description:
  - At the end of a play run, prints one block per host.
  - Roles of this collection say what they skipped and why in the facts C(gpuops_skipped) and C(gpuops_reboot_required),
    both dictionaries from role name to a list of one-line reasons.
  - Equal lines of several hosts are printed once with the hosts' names.
author:
  - The gpuops.cluster contributors (@gpuops)
requirements:
  - enable in configuration with C(callbacks_enabled = gpuops.cluster.summary)
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ansible.plugins.callback import CallbackBase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REPORT_FACTS = {"gpuops_skipped": "skipped", "gpuops_reboot_required": "reboot required", "gpuops_notes": "note"}


def group_lines(per_host: Mapping[str, Iterable[str]]) -> list[tuple[str, list[str]]]:
    """Turn {host: lines} into [(line, hosts)], lines in order of appearance, hosts in order."""
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for host, lines in per_host.items():
        for line in lines:
            if host not in hosts_of[line]:
                hosts_of[line].append(host)
    return list(hosts_of.items())


def name_hosts(hosts: list[str], everyone: int) -> str:
    """Hosts as a short text: all of them, up to four names, or the first three and a count."""
    if len(hosts) == everyone and everyone > 1:
        return f"all {everyone} hosts"
    if len(hosts) <= 4:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"


def role_lines(value: Any) -> list[str]:
    """The lines "role: reason" of one report fact; anything of another shape is ignored, since a host sent it."""
    if not isinstance(value, dict):
        return []
    return [f"{role}: {reason}" for role, reasons in value.items() if isinstance(reasons, list) for reason in reasons]


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Collects while the run goes on, prints once at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpuops.cluster.summary"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.reports: dict[str, dict[str, list[str]]] = {kind: {} for kind in REPORT_FACTS.values()}

    def v2_runner_on_ok(self, result: Any) -> None:
        host = result._host.get_name()
        data = result._result
        if data.get("changed", False):
            role = result._task._role.get_name() if result._task._role else "playbook"
            self.changed[host][role.rpartition(".")[2]] += 1
        facts = data.get("ansible_facts")
        if isinstance(facts, dict):
            for fact, kind in REPORT_FACTS.items():
                if fact in facts:
                    self.reports[kind][host] = role_lines(facts[fact])

    def v2_playbook_on_stats(self, stats: Any) -> None:
        hosts = sorted(stats.processed)
        if not any(self.changed.values()) and not any(any(lines.values()) for lines in self.reports.values()):
            return
        self._display.banner("SUMMARY")
        for host in hosts:
            counts = self.changed.get(host)
            if counts:
                self._display.display(
                    f"{host:<20} changed: " + ", ".join(f"{r} {n}" for r, n in counts.items()), color="yellow"
                )
        for kind, per_host in self.reports.items():
            for line, names in group_lines(per_host):
                self._display.display(f"{kind}: {line} [{name_hosts(names, len(hosts))}]", color="cyan")
