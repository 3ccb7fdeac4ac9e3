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
  - Starts commands on the host where it runs and waits for all of them.
  - A command that hangs, crashes or cannot be started is a result like any other; the module never fails because of it.
  - M(gpuops.cluster.nccl_gate) uses it for every round.
options:
  launches:
    description: The commands.
    type: list
    elements: dict
    required: true
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
outcomes:
  description: How each launch ended, in the order given.
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

from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._launch import launch


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "launches": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "command": {"type": "list", "elements": "str", "required": True},
                    "environment": {"type": "dict", "default": {}},
                    "timeout": {"type": "float", "required": True},
                    "cleanup": {"type": "list", "elements": "str", "default": []},
                },
            },
            "parallel": {"type": "int", "default": 64},
            "keep": {"type": "int", "default": 2000000},
        },
        supports_check_mode=True,
    )
    launches = [] if module.check_mode else module.params["launches"]
    with ThreadPoolExecutor(max_workers=max(1, module.params["parallel"])) as pool:
        outcomes = list(pool.map(lambda spec: launch(spec, module.params["keep"]), launches))
    module.exit_json(changed=False, outcomes=outcomes)


if __name__ == "__main__":
    main()
