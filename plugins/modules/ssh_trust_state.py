#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_trust_state
short_description: What sshd does on a node, and what it still lacks to trust the other nodes
version_added: 0.2.0
description:
  - Asks sshd for its effective settings and reads the certificates of the node.
  - Says what is missing, and what would keep users out.
  - Made for the role P(gpuops.cluster.ssh_trust#role), which acts on the answer.
options:
  name:
    description: Name of the node in its host certificate.
    type: str
    required: true
  address:
    description: Where the other nodes reach this one.
    type: str
    required: true
  peer:
    description: Address of another node, to ask whether sshd lets users in from there. Empty means the node's own.
    type: str
    default: ""
  mode:
    description: Whether users are trusted by certificates, or by plain keys.
    type: str
    choices: [certificates, keys]
    default: certificates
  users:
    description: Users who leave this node.
    type: list
    elements: str
    default: []
  everyone:
    description: Users who come to this node.
    type: list
    elements: str
    default: []
  shared:
    description: Public keys of the users' plain pairs, by user.
    type: dict
    default: {}
  principals:
    description: More names and addresses of this node.
    type: list
    elements: str
    default: []
  authority:
    description: Public key of the authority, empty as long as there is none.
    type: str
    default: ""
  replace_authority:
    description: Whether a node that trusts another authority may change.
    type: bool
    default: false
  revoked:
    description: Names or patterns of hosts, and of users on hosts such as V(alice@n7), that must not be certified.
    type: list
    elements: str
    default: []
  revoked_keys:
    description: Public keys that must not be certified again.
    type: list
    elements: str
    default: []
  over_ssh:
    description: Whether Ansible reaches this node by the sshd in question.
    type: bool
    default: true
  seen:
    description:
      - An earlier answer. Given again, without a new look, if all options but this one and O(refuse) were the same.
      - For a first look at all nodes, whose answers may change the question, and a second one where they did.
    type: dict
    default: {}
  refuse:
    description:
      - What else stands in the way, one sentence each.
      - If this list is given, empty or not, the task fails with the RV(problems) and what is in it, one a line.
    type: list
    elements: str
attributes:
  action:
    description: Runs on the node, and on the control node, which knows what was asked before.
    support: full
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Stop if somebody could not log in
  gpuops.cluster.ssh_trust_state:
    name: "{{ inventory_hostname }}"
    address: "{{ ansible_host }}"
    everyone: [root, alice]
    refuse: []
"""

RETURN = r"""
installed:
  description: Whether there is an sshd. Without it only C(problems), C(work) and the like are returned, all empty.
  returned: always
  type: bool
problems:
  description: What stands in the way, one sentence each.
  returned: always
  type: list
  elements: str
work:
  description: A signing request for each certificate that is missing or no longer right, with the reason.
  returned: always
  type: list
  elements: dict
missing_pairs:
  description: Users whose key pair is missing.
  returned: always
  type: list
  elements: str
shared_pairs:
  description: Those of C(missing_pairs) who have a pair that several nodes share, which is not to be certified.
  returned: always
  type: list
  elements: str
unauthorized:
  description: Users whose plain key is not yet, or no longer rightly, authorized here.
  returned: always
  type: list
  elements: str
authorized_files:
  description: Values of C(AuthorizedKeysFile) without ours, for plain keys.
  returned: when sshd answered
  type: list
  elements: str
stale:
  description: Files of users who are no longer trusted.
  returned: always
  type: list
  elements: str
in_effect:
  description: Whether all that was configured is what sshd does.
  returned: always
  type: bool
reload:
  description: Whether sshd has to read its files again.
  returned: always
  type: bool
digest:
  description: Checksum of what sshd is to read.
  returned: when sshd answered
  type: str
active:
  description: Whether systemd runs sshd, by C(ssh.service) or C(ssh.socket).
  returned: when sshd answered
  type: bool
service:
  description: Whether C(ssh.service) runs.
  returned: when sshd answered
  type: bool
ports:
  description: Ports of sshd.
  returned: when sshd answered
  type: list
  elements: str
host_key:
  description: The public key that the host certificate is for.
  returned: when sshd answered
  type: str
host_key_path:
  description: Where the private one lies.
  returned: when sshd answered
  type: str
include:
  description: Whether C(sshd_config) and C(ssh_config) read drop-ins before their first block.
  returned: when sshd answered
  type: dict
files:
  description:
    - Of each file that the role writes the numbers of owner and group, the mode and the SHA-256 of its text. Of
      C(/etc/ssh/ssh_known_hosts) the text of the role's block. Empty where there is none.
  returned: when sshd answered
  type: dict
  sample:
    /etc/ssh/ssh_trust_ca.pub: 0:0 0644 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
own:
  description: The options that other nodes need to know of this one, O(users), O(mode) and O(address).
  returned: success
  type: dict
question:
  description: Checksum of the options.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._ssh_trust import look


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "peer": {"type": "str", "default": ""},
            "mode": {"type": "str", "choices": ["certificates", "keys"], "default": "certificates"},
            "users": {"type": "list", "elements": "str", "default": []},
            "everyone": {"type": "list", "elements": "str", "default": []},
            "shared": {"type": "dict", "default": {}},
            "principals": {"type": "list", "elements": "str", "default": []},
            "authority": {"type": "str", "default": ""},
            "replace_authority": {"type": "bool", "default": False},
            "revoked": {"type": "list", "elements": "str", "default": []},
            "revoked_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "over_ssh": {"type": "bool", "default": True},
            "seen": {"type": "dict", "default": {}},
            "refuse": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **look(module.params))


if __name__ == "__main__":
    main()
