#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: one user of Slurm in one account."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_user
short_description: A user of Slurm in an account, with their share and their limits
description:
  - Adds a user to an account, changes what they may do there, or takes them out. Only what is named is set.
  - A user may be in several accounts, by one call for each.
version_added: 0.2.0
author:
  - The gpuops.cluster contributors (@gpuops)
extends_documentation_fragment:
  - gpuops.cluster._sacctmgr
  - gpuops.cluster._sacctmgr.association
options:
  name:
    description: Login name.
    type: str
    required: true
  account:
    description:
      - The account. Needed unless O(state=absent).
      - With O(state=absent), the user leaves this account; without it, they leave the accounting altogether.
    type: str
  default:
    description: Whether the account is the one of jobs that name none. A user's first account is so by itself.
    type: bool
    default: false
  admin_level:
    description: What the user may do with sacctmgr, in all clusters.
    type: str
    choices: [none, operator, administrator]
seealso:
  - module: gpuops.cluster.slurm_account
  - module: gpuops.cluster.slurm_qos
"""

EXAMPLES = r"""
- name: Alice may use 8 GPUs at a time
  gpuops.cluster.slurm_user:
    name: alice
    account: vision
    max_gpus: 8

- name: Bob has left
  gpuops.cluster.slurm_user:
    name: bob
    state: absent
"""

RETURN = r"""
commands:
  description: Arguments that sacctmgr was, or would be, called with.
  returned: success
  type: list
  elements: str
  sample: ["add user alice account=vision cluster=lab"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _sacctmgr
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "account": {"type": "str"},
            "default": {"type": "bool", "default": False},
            "admin_level": {"type": "str", "choices": ["none", "operator", "administrator"]},
            **_sacctmgr.COMMON,
            **_sacctmgr.ASSOCIATION,
        },
        required_if=[("state", "present", ["account"])],
        supports_check_mode=True,
    )
    wanted = _sacctmgr.named(module.params)
    try:
        slurm = _sacctmgr.Sacctmgr(module.run_command)
        cluster = slurm.cluster(wanted.get("cluster"))
        accounts, users = slurm.accounts(cluster), slurm.users()
        if wanted["state"] == "absent":
            commands = accounting.remove_user(users, accounts, wanted, slurm.everywhere(cluster))
        else:
            commands = accounting.plan_user(users, accounts, wanted, cluster)
        after = accounting.normal(accounting.ASSOCIATION, wanted)
        after.update({name: wanted[name] for name in ("admin_level",) if name in wanted})
        if wanted["default"]:
            after["default_account"] = wanted["account"].lower()
        before = accounting.describe_user(users, accounts, wanted["name"], wanted.get("account", ""))
        _sacctmgr.conclude(module, commands, before, after)
    except (_sacctmgr.Failed, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
