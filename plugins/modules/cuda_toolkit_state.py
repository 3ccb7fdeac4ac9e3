#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit_state
short_description: What the role cuda_toolkit has to do on a host
version_added: 0.3.0
description:
  - Looks at packages, apt's sources, keys and pins, links and files of CUDA toolkits on a host, all in one task.
  - Decides as P(gpuops.cluster.cuda_toolkit_plan#filter) does, and fails with everything that speaks against it.
  - Fetches apt's package lists where there are none and the distribution's toolkit is wanted; changes nothing else.
  - Made for the role P(gpuops.cluster.cuda_toolkit#role), which acts on the answer.
options:
  settings:
    description: The role's variables, as P(gpuops.cluster.cuda_toolkit_plan#filter) reads them.
    type: dict
    required: true
  host:
    description:
      - C(distribution), C(release) and C(machine), such as V(Debian), V(12) and V(x86_64).
      - C(driver), the version that is installed.
      - C(pci_count), the number of GPUs on the bus, and C(gpus), the devices of M(gpuops.cluster.gpu_facts).
        Where no driver names devices, their numbers on the bus are read.
    type: dict
    required: true
  file:
    description: The repository file, if it is to be brought, as P(gpuops.cluster.cuda_toolkit_plan#filter) reads it.
    type: dict
  files:
    description: Files of mode C(0644) that should be there.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path on the host.
        type: path
        required: true
      content:
        description: What is to be in it.
        type: str
extends_documentation_fragment:
  - gpuops.cluster.look
attributes:
  action:
    description: Decides on the control node, where the contents of files stay.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look, and decide
  gpuops.cluster.cuda_toolkit_state:
    settings: "{{ settings }}"
    host: "{{ facts }}"
    files:
      - {path: /etc/profile.d/gpuops-cuda.sh, content: "{{ lookup('ansible.builtin.template', 'gpuops-cuda.sh.j2') }}"}
  register: plan
"""

RETURN = r"""
differs:
  description: All that is not as it should be, a line each. Empty where there is nothing to do.
  returned: when nothing is refused
  type: list
  elements: str
  sample: [cuda-nvcc-13-0 is not held]
interrupted:
  description: Whether dpkg was interrupted.
  returned: when nothing is refused
  type: bool
current:
  description:
    - Whether the toolkit is installed as wanted.
    - All other values of P(gpuops.cluster.cuda_toolkit_plan#filter) are there as well, each under its own name.
  returned: when nothing is refused
  type: bool
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _cuda_toolkit_look as look


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "required": True},
            "host": {"type": "dict", "required": True},
            "file": {"type": "dict"},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"path": {"type": "path", "required": True}, "content": {"type": "str"}},
            },
        },
        supports_check_mode=True,
    )
    settings, host = module.params["settings"], module.params["host"]
    match = re.match(r"(\d+)\.(\d+)", settings["version"])
    family = [f"*-{match[1]}-{match[2]}", f"cuda-toolkit-{match[1]}-{match[2]}-*"] if match else []
    if settings["source"] == "distribution":
        family = ["nvidia-cuda-toolkit"]
    paths = [entry["path"] for entry in module.params["files"]]
    pci = host["pci_count"] > 0 and not host["gpus"]
    try:
        seen = look.look(module.run_command, settings["source"], family, paths, pci, look.Places())
    except look.Trouble as trouble:
        module.fail_json(msg=str(trouble))
    module.exit_json(changed=False, **seen)


if __name__ == "__main__":
    main()
