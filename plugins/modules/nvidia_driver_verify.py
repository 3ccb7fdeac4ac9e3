#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_verify
short_description: Is the NVIDIA driver there and answering, at one version?
version_added: 0.3.0
description:
  - Asks dpkg for the packages that are there now, compares them with the answer of C(nvidia-smi) and with the loaded
    module as P(gpuops.cluster.nvidia_driver_verdict#filter) does, and fails where they differ.
options:
  name:
    description: Name of the host, for messages.
    type: str
    required: true
  plan:
    description: C(resolved), C(packages) and C(release) of what M(gpuops.cluster.nvidia_driver_state) returned.
    type: dict
    required: true
  gpu:
    description: Of the facts of M(gpuops.cluster.gpu_facts), C(state), C(reason), C(pci_count) and C(driver).
    type: dict
    required: true
  packages:
    description: Patterns of dpkg-query for what may belong to a driver.
    type: list
    elements: str
    required: true
  reboot:
    description: What waits for a reboot.
    type: list
    elements: str
    default: []
  kernel_log:
    description: Lines of the kernel's log about a module that did not load.
    type: list
    elements: str
    default: []
  predicted:
    description: Whether nothing was really changed, as in check mode.
    type: bool
    default: false
attributes:
  check_mode:
    description: Reads only, the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Ask the driver
  gpuops.cluster.nvidia_driver_verify:
    name: "{{ inventory_hostname }}"
    plan: "{{ plan }}"
    gpu: "{{ ansible_facts.gpu }}"
    packages: ['*nvidia*', libcuda1*]
"""

RETURN = r"""
unasked:
  description: What could not be asked and why.
  returned: always
  type: list
  elements: str
  sample: ["nvidia-smi not judged: there is no NVIDIA GPU on the PCI bus"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_verdict import verdict


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "gpu": {"type": "dict", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "reboot": {"type": "list", "elements": "str", "default": []},
            "kernel_log": {"type": "list", "elements": "str", "default": []},
            "predicted": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}|${Package}|${Version}\\n", *given["packages"]]
    rc, said, err = module.run_command(query, expand_user_and_vars=False)
    if rc > 1:  # 1: nothing matches
        module.fail_json(msg=f"{given['name']}: dpkg-query says: {err.strip()}", unasked=[])
    judged = verdict(
        given["plan"], given["gpu"], said.splitlines(), given["reboot"], given["kernel_log"], given["predicted"]
    )
    if judged["wrong"]:
        module.fail_json(msg=f"{given['name']}: {'; '.join(judged['wrong'])}", unasked=judged["skipped"])
    module.exit_json(changed=False, unasked=judged["skipped"])


if __name__ == "__main__":
    main()
