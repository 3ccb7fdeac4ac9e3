#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_state
short_description: What can be tuned on a host, and what its services and its kernel have now
version_added: 0.2.0
description:
  - Asks the running system; starts one transient service of systemd to see the limits that services get.
  - Made for the role P(gpuops.cluster.host_tuning#role), which acts on the answer.
options:
  memlock:
    description: Memory that a process may lock, V(unlimited) or KiB.
    type: str
    required: true
  nofile:
    description: Files that a process may open at most.
    type: int
    required: true
  nofile_soft:
    description: Files that a process may open unless it asks for more.
    type: int
    required: true
  parameters:
    description: Parameters that the kernel command line should have.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: See whether services may lock memory
  gpuops.cluster.host_tuning_state:
    memlock: unlimited
    nofile: 1048576
    nofile_soft: 65536
  register: state

- name: Show what they have
  ansible.builtin.debug:
    msg: "{{ state.service_limits.differing | map(attribute='text') }}"
"""

RETURN = r"""
problems:
  description: What the role refuses.
  returned: always
  type: list
  elements: str
refused_limits:
  description: Why not even root may set C(memlock) and C(nofile), in the kernel's words; empty where it may.
  returned: always
  type: dict
service_limits:
  description:
    - Limits of services. C(manager), whether systemd has them as wanted.
    - C(asked), whether a service could be started to ask.
    - C(differing), a text for each limit that such a service did not get.
  returned: always
  type: dict
  sample: {manager: true, asked: true, differing: []}
job_limits:
  description: A line where jobs of Slurm may lock less memory than wanted; empty elsewhere.
  returned: always
  type: str
time_daemon:
  description: The time daemon that is active, empty where there is none.
  returned: always
  type: str
clock:
  description: Why the clock is not to be kept here; empty where it is.
  returned: always
  type: str
grub:
  description: Why the kernel command line cannot be set here; empty where it can.
  returned: always
  type: str
acs:
  description: A line on PCIe bridges that send traffic between GPUs through the root complex.
  returned: always
  type: list
  elements: str
parameters_missing:
  description: Those of O(parameters) that the running kernel lacks.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._host_tuning import look


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "memlock": {"type": "str", "required": True},
            "nofile": {"type": "int", "required": True},
            "nofile_soft": {"type": "int", "required": True},
            "parameters": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **look(module.params))


if __name__ == "__main__":
    main()
