#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_trust_logins
short_description: Log in from a node to others as each trusted user
version_added: 0.3.0
description:
  - Logs in by ssh without a prompt and with verified host keys, by the names of nodes where this node can resolve them.
  - Fails with ssh's own words where a login does not work. An sshd that is only busy is asked again.
  - Made for the role P(gpuops.cluster.ssh_trust#role), which proves by it that what it set up works. Needs root.
options:
  name:
    description: Name of this node, for messages.
    type: str
    required: true
  users:
    description: Who logs in, each under the same name.
    type: list
    elements: str
    default: []
  targets:
    description: Where to.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the other node.
        type: str
        required: true
      address:
        description: Where it is reached if this node cannot resolve its name.
        type: str
        required: true
      port:
        description: Port of its sshd.
        type: int
        default: 22
      required:
        description: Whether it is a failure that a login does not work. Otherwise it is one of the RV(notes).
        type: bool
        default: true
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Log in to n2 as alice
  gpuops.cluster.ssh_trust_logins:
    name: "{{ inventory_hostname }}"
    users: [alice]
    targets: [{name: n2, address: 10.0.0.2}]
"""

RETURN = r"""
tried:
  description: How many logins were tried.
  returned: always
  type: int
notes:
  description: What did not work and did not have to, one sentence each.
  returned: always
  type: list
  elements: str
  sample: ["root: n1 -> n2 (n2 port 22): ssh: connect to host n2 port 22: No route to host"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._ssh_logins import try_all


def main() -> None:
    target = {
        "name": {"type": "str", "required": True},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "default": 22},
        "required": {"type": "bool", "default": True},
    }
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "users": {"type": "list", "elements": "str", "default": []},
            "targets": {"type": "list", "elements": "dict", "default": [], "options": target},
        },
        supports_check_mode=True,
    )
    answer = try_all(module.params["name"], module.params["users"], module.params["targets"])
    failures = answer.pop("failures")
    if failures:
        module.fail_json(msg="\n".join(failures), **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
