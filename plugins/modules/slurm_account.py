#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: one account of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: An account of Slurm, with its share and its limits
description:
  - Adds, changes or removes one account. Only what is named is set; the rest stays as it is.
  - M(gpuops.cluster.slurm_accounting) takes a whole list at once, in the right order.
version_added: 0.2.0
author:
  - The gpuops.cluster contributors (@gpuops)
extends_documentation_fragment:
  - gpuops.cluster._sacctmgr
  - gpuops.cluster._sacctmgr.association
options:
  name:
    description: Name of the account.
    type: str
    required: true
  parent:
    description: The account above. A new account without one is below C(root).
    type: str
  recursive:
    description: Whether an account that still has users or accounts below it is removed with them.
    type: bool
    default: false
seealso:
  - module: gpuops.cluster.slurm_user
  - module: gpuops.cluster.slurm_qos
"""

EXAMPLES = r"""
- name: Vision has three shares and at most 64 GPUs at a time
  gpuops.cluster.slurm_account:
    name: vision
    fairshare: "3"
    max_gpus: 64
    qos: [normal, urgent]

- name: The project is over
  gpuops.cluster.slurm_account:
    name: speech
    recursive: true
    state: absent
"""

RETURN = r"""
commands:
  description: Arguments that sacctmgr was, or would be, called with.
  returned: success
  type: list
  elements: str
  sample: ["add account vision cluster=lab parent=root"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _sacctmgr
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "parent": {"type": "str"},
            "recursive": {"type": "bool", "default": False},
            **_sacctmgr.COMMON,
            **_sacctmgr.ASSOCIATION,
        },
        supports_check_mode=True,
    )
    wanted = _sacctmgr.named(module.params)
    name = wanted["name"].lower()
    try:
        slurm = _sacctmgr.Sacctmgr(module.run_command)
        cluster = slurm.cluster(wanted.get("cluster"))
        now = slurm.accounts(cluster)
        if wanted["state"] == "absent":
            commands = accounting.remove_account(now, name, slurm.everywhere(cluster), recursive=wanted["recursive"])
        else:
            commands = accounting.plan_accounts(now, [wanted], cluster)
        after = accounting.normal(accounting.ASSOCIATION, wanted)
        if "parent" in wanted:
            after["parent"] = wanted["parent"].lower()
        _sacctmgr.conclude(module, commands, now.get(name), after)
    except (_sacctmgr.Failed, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
