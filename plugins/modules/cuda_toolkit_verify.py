#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit_verify
short_description: Does nvcc compile, and do the GPUs compute what it compiled?
version_added: 0.3.0
description:
  - Asks C(nvcc) for its release, compiles a kernel for all architectures that are named, and runs it on every GPU
    where a driver is loaded. Fails where one of them is not as it should be.
  - Leaves nothing behind.
options:
  name:
    description: Name of the host, for messages.
    type: str
    required: true
  nvcc:
    description: Path of the compiler.
    type: path
    required: true
  package:
    description: The package that should have brought it, for messages.
    type: str
    required: true
  release:
    description: The release that it should be, such as V(13.0).
    type: str
    required: true
  architectures:
    description: What to compile for, such as V(90).
    type: list
    elements: str
    required: true
  run_kernel:
    description: Whether to run what was compiled where a driver is loaded.
    type: bool
    default: true
attributes:
  check_mode:
    description: The same, but a compiler that is not there yet is not missed.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Prove the compiler
  gpuops.cluster.cuda_toolkit_verify:
    name: "{{ inventory_hostname }}"
    nvcc: /usr/local/cuda-13.0/bin/nvcc
    package: cuda-toolkit-13-0
    release: "13.0"
    architectures: ["80", "90"]
"""

RETURN = r"""
compiled:
  description: Whether a kernel was compiled.
  returned: always
  type: bool
not_run:
  description: What was not proven, and why.
  returned: always
  type: list
  elements: str
  sample: ["not run: the test kernel compiles, but no NVIDIA driver is loaded here"]
ran:
  description: What the compiled program said.
  returned: always
  type: str
  sample: ran on 8 GPUs
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkit_proof import Proof, prove


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "nvcc": {"type": "path", "required": True},
            "package": {"type": "str", "required": True},
            "release": {"type": "str", "required": True},
            "architectures": {"type": "list", "elements": "str", "required": True},
            "run_kernel": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    nvcc = given["nvcc"]
    if os.path.lexists(nvcc):
        proof = prove(module.run_command, nvcc, given["release"], given["architectures"], given["run_kernel"])
    elif module.check_mode:
        proof = Proof(not_run=[f"nothing compiled: {nvcc} is not installed yet"])
    else:
        proof = Proof(wrong=f"there is no {nvcc}, though {given['package']} should have brought it")
    said = {"compiled": proof.compiled, "not_run": proof.not_run, "ran": proof.ran}
    if proof.wrong:
        module.fail_json(msg=f"{given['name']}: {proof.wrong}", **said)
    module.exit_json(changed=False, **said)


if __name__ == "__main__":
    main()
