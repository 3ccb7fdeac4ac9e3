# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks and tells sacctmgr, for all modules of the accounting. What it is told is planned elsewhere. Private."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible.module_utils.basic import AnsibleModule

    Run = Callable[[list[str]], tuple[int, str, str]]


# Options that the modules of one account, user or quality of service share; described in doc_fragments/_sacctmgr.py.
COMMON: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "cluster": {"type": "str"},
}
ASSOCIATION: dict[str, Any] = {
    "fairshare": {"type": "str"},
    "max_gpus": {"type": "int"},
    "max_jobs": {"type": "int"},
    "qos": {"type": "list", "elements": "str"},
    "default_qos": {"type": "str"},
}


class Failed(Exception):
    """sacctmgr refused, with its own words."""


class Sacctmgr:
    """sacctmgr on this host."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def show(self, *words: str) -> str:
        code, out, err = self._run(["sacctmgr", "--noheader", "--parsable2", "show", *words])
        if code:
            raise Failed(f"sacctmgr show {' '.join(words)}: {(err or out).strip()}")
        return out

    def apply(self, commands: Sequence[Sequence[str]]) -> None:
        for command in commands:
            code, out, err = self._run(["sacctmgr", "--immediate", *command])
            if code:
                said = " ".join(f"{err}\n{out}".split())
                raise Failed(f"sacctmgr {' '.join(command)}: {said}")

    def clusters(self) -> list[str]:
        return self.show("cluster", "format=Cluster").lower().split()

    def cluster(self, wanted: str | None) -> str:
        """The cluster that is meant: the named one, or the only one."""
        known = self.clusters()
        if wanted and wanted.lower() not in known:
            raise Failed(f"slurmdbd knows no cluster {wanted.lower()}; it knows: {', '.join(known) or 'none'}")
        if not wanted and len(known) != 1:
            raise Failed(f"name the cluster: slurmdbd knows {', '.join(known) or 'none'}")
        return wanted.lower() if wanted else known[0]

    def everywhere(self, cluster: str) -> str:
        """Where something is removed from: that cluster, or, where there is no other, "" for all of slurmdbd."""
        return "" if self.clusters() == [cluster] else cluster

    def wait_for(self, cluster: str, seconds: float) -> bool:
        """Whether slurmctld has registered the cluster, after at most so many seconds."""
        deadline = time.monotonic() + seconds
        while cluster.lower() not in self.clusters():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.5)
        return True

    def accounts(self, cluster: str) -> dict[str, accounting.Row]:
        answer = self.show("assoc", f"cluster={cluster}", f"format={accounting.ASSOC_FORMAT}")
        return accounting.read_accounts(answer)

    def users(self) -> dict[str, accounting.Row]:
        return accounting.read_users(self.show("user", f"format={accounting.USER_FORMAT}"))

    def qos(self) -> dict[str, accounting.Row]:
        return accounting.read_qos(self.show("qos", f"format={accounting.QOS_FORMAT}"))


def named(parameters: dict[str, Any]) -> dict[str, Any]:
    """The options that the task has: what is not named is not touched."""
    return {name: value for name, value in parameters.items() if value is not None}


def conclude(
    module: AnsibleModule, commands: accounting.Commands, before: accounting.Row | None, after: accounting.Row
) -> None:
    """Carry the commands out unless only asked, and end the module. The difference is in what is ``after`` named."""
    if not module.check_mode:
        Sacctmgr(module.run_command).apply(commands)
    gone = bool(commands) and module.params["state"] == "absent"
    old = {} if before is None else before if gone else {name: before.get(name) for name in after}
    new = {} if gone else after if commands else old
    module.exit_json(
        changed=bool(commands), commands=[" ".join(words) for words in commands], diff={"before": old, "after": new}
    )
