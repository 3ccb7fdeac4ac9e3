#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module: start several launches of nccl-tests side by side, each with a time limit of its own."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_launch
short_description: Start launches of nccl-tests side by side, each with its own time limit
description:
  - Starts commands on the host where it runs and waits for all of them, or, with O(wait), for a while.
  - A command that hangs, crashes or cannot be started is a result like any other; the module never fails because of it.
  - M(gpuops.cluster.nccl_gate) uses it for every round.
options:
  launches:
    description: The commands. One of O(launches) and O(job) is needed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name by which the result is found again.
        type: str
        required: true
      command:
        description: Program and arguments; no shell.
        type: list
        elements: str
        required: true
      environment:
        description: Variables set in addition.
        type: dict
        default: {}
      timeout:
        description: Seconds after which the command is stopped.
        type: float
        required: true
      cleanup:
        description: Command that ends what a stopped command may have left elsewhere.
        type: list
        elements: str
        default: []
  parallel:
    description: How many commands run at the same time.
    type: int
    default: 64
  wait:
    description:
      - Seconds after which to return, at the latest, with what has ended so far; the commands go on meanwhile.
      - With V(0) the module returns when all have ended.
    type: float
    default: 0
  job:
    description: What an earlier call that did not wait to the end returned as RV(job); asks how far it is.
    type: path
  lease:
    description: A file whose time of change says when the caller was last heard of. It is renewed when it exists.
    type: path
  keep:
    description: How many characters of each output are returned, from the end.
    type: int
    default: 2000000
attributes:
  check_mode:
    description: In check mode nothing is started and no result is returned.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Reduce over both nodes, for two minutes at most
  gpuops.cluster.nccl_launch:
    launches:
      - name: whole
        command: [srun, -N2, --ntasks-per-node=8, --mpi=pmix, /opt/nccl-tests/bin/all_reduce_perf, -b, 1G, -e, 1G]
        timeout: 120
"""

RETURN = r"""
finished:
  description: Whether all commands have ended.
  returned: success
  type: bool
job:
  description: What to give as O(job) to the next call.
  returned: when O(wait) or O(job) was given
  type: str
ended:
  description: Names of the commands that have ended.
  returned: when O(wait) or O(job) was given and not all have ended
  type: list
  elements: str
outcomes:
  description: How each launch ended, in the order given; empty as long as not all have.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name of the launch., type: str}
    rc: {description: Exit code; negative for a signal; null when the command could not be started., type: int}
    stdout: {description: Output., type: str}
    stderr: {description: Error output., type: str}
    seconds: {description: How long it ran., type: float}
    timed_out: {description: Whether it was stopped at its time limit., type: bool}
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _launch_round as rounds


def run(params: dict[str, Any]) -> dict[str, Any]:
    """A whole round, the beginning of one, or a look at one."""
    if params["lease"]:
        with contextlib.suppress(OSError):
            os.utime(params["lease"])
    if params["job"]:
        folder = Path(params["job"])
        if not folder.name.startswith(rounds.PREFIX):
            return {"failed": True, "msg": f"job is '{folder}', expected what an earlier call returned"}
        return rounds.look(folder, params["wait"])
    launches, parallel, keep = params["launches"], params["parallel"], params["keep"]
    if not params["wait"]:
        return {"finished": True, "outcomes": rounds.together(launches, parallel, keep)}
    return rounds.look(rounds.start(launches, parallel, keep), params["wait"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "launches": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "command": {"type": "list", "elements": "str", "required": True},
                    "environment": {"type": "dict", "default": {}},
                    "timeout": {"type": "float", "required": True},
                    "cleanup": {"type": "list", "elements": "str", "default": []},
                },
            },
            "parallel": {"type": "int", "default": 64},
            "wait": {"type": "float", "default": 0},
            "job": {"type": "path"},
            "lease": {"type": "path"},
            "keep": {"type": "int", "default": 2000000},
        },
        required_one_of=[("launches", "job")],
        mutually_exclusive=[("launches", "job")],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, finished=True, outcomes=[])
    result = run(module.params)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
