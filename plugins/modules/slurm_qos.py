#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: one quality of service of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_qos
short_description: A quality of service of Slurm
description:
  - Adds, changes or removes one quality of service. Only what is named is set; the rest stays as it is.
version_added: 0.2.0
author:
  - The gpuops.cluster contributors (@gpuops)
extends_documentation_fragment:
  - gpuops.cluster._sacctmgr
options:
  name:
    description: Name of the quality of service.
    type: str
    required: true
  cluster:
    description: Not used. Qualities of service are the same in all clusters of a slurmdbd.
    type: str
  priority:
    description: Higher ones start earlier, by C(PriorityWeightQOS).
    type: int
  max_gpus:
    description: GPUs of all its jobs at a time; V(-1) for no limit.
    type: int
  max_gpus_per_job:
    description: GPUs of one job; V(-1) for no limit.
    type: int
  max_gpus_per_user:
    description: GPUs of one user at a time; V(-1) for no limit.
    type: int
  max_jobs_per_user:
    description: Jobs of one user at a time; V(-1) for no limit.
    type: int
  max_time:
    description: Longest time of a job, as Slurm writes times, such as V(7-0) or V(12:00:00); V(-1) for no limit.
    type: str
  preempts:
    description: Qualities of service whose jobs have to make room. The list is exact.
    type: list
    elements: str
  flags:
    description: Slurm's flags, such as V(DenyOnLimit). The list is exact.
    type: list
    elements: str
seealso:
  - module: gpuops.cluster.slurm_account
  - module: gpuops.cluster.slurm_user
"""

EXAMPLES = r"""
- name: Debugging starts at once, on two GPUs, for half an hour
  gpuops.cluster.slurm_qos:
    name: debug
    priority: 1000
    max_gpus_per_user: 2
    max_time: "30"
"""

RETURN = r"""
commands:
  description: Arguments that sacctmgr was, or would be, called with.
  returned: success
  type: list
  elements: str
  sample: ["add qos debug", "modify qos debug set Priority=1000"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _sacctmgr
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "priority": {"type": "int"},
            "max_gpus": {"type": "int"},
            "max_gpus_per_job": {"type": "int"},
            "max_gpus_per_user": {"type": "int"},
            "max_jobs_per_user": {"type": "int"},
            "max_time": {"type": "str"},
            "preempts": {"type": "list", "elements": "str"},
            "flags": {"type": "list", "elements": "str"},
            **_sacctmgr.COMMON,
        },
        supports_check_mode=True,
    )
    wanted = _sacctmgr.named(module.params)
    try:
        now = _sacctmgr.Sacctmgr(module.run_command).qos()
        if wanted["state"] == "absent":
            commands = accounting.remove_qos(now, wanted["name"])
        else:
            commands = accounting.plan_qos(now, [wanted])
        _sacctmgr.conclude(module, commands, now.get(wanted["name"].lower()), accounting.normal(accounting.QOS, wanted))
    except (_sacctmgr.Failed, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
