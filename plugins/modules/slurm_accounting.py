#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: accounts, users and qualities of service."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounting
short_description: Accounts, users and qualities of service of a Slurm cluster
description:
  - Compares what is wanted with what C(sacctmgr) knows and tells it the difference.
  - Only what is named is set. Accounts, users and qualities of service that are not named stay as they are.
version_added: 0.1.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Predicts the commands.
    support: full
  diff_mode:
    description: Shows the commands.
    support: full
options:
  cluster:
    description: C(ClusterName).
    type: str
    required: true
  accounts:
    description: >-
      Accounts, each with C(name) and, where wanted, C(parent), C(fairshare), C(max_gpus) of the whole account at a
      time, C(qos) that may be used, and C(users).
    type: list
    elements: dict
    default: []
  qos:
    description: >-
      Qualities of service, each with C(name) and, where wanted, C(priority), C(max_gpus_per_user), C(max_time) of a job
      and C(preempts), those whose jobs have to make room.
    type: list
    elements: dict
    default: []
  timeout:
    description: Seconds to wait until a new cluster has registered.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Two projects that share the GPUs three to one
  gpuops.cluster.slurm_accounting:
    cluster: lab
    accounts:
      - {name: vision, fairshare: 3, users: [alice, bob]}
      - {name: speech, fairshare: 1, max_gpus: 8, users: [carol]}
"""

RETURN = r"""
commands:
  description: Arguments that sacctmgr was, or would be, called with.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _sacctmgr
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "accounts": {"type": "list", "elements": "dict", "default": []},
            "qos": {"type": "list", "elements": "dict", "default": []},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    cluster = module.params["cluster"].lower()
    slurm = _sacctmgr.Sacctmgr(module.run_command)
    commands: accounting.Commands = []
    try:
        if not slurm.wait_for(cluster, 0 if module.check_mode else module.params["timeout"]) and not module.check_mode:
            module.fail_json(msg=f"the cluster {cluster} has not registered with slurmdbd: ask slurmctld's log why")
        commands += accounting.plan_qos(slurm.qos(), module.params["qos"])
        commands += accounting.plan_accounts(slurm.accounts(cluster), module.params["accounts"], cluster)
        if not module.check_mode:
            slurm.apply(commands)
    except (_sacctmgr.Failed, ValueError) as error:
        module.fail_json(msg=str(error))
    lines = [" ".join(command) for command in commands]
    diff = {"before": "", "after": "".join(f"sacctmgr {line}\n" for line in lines)}
    module.exit_json(changed=bool(commands), commands=lines, diff=diff)


if __name__ == "__main__":
    main()
