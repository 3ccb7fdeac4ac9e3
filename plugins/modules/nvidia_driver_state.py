#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_state
short_description: What a host has of the NVIDIA driver, what is to be done about it, and whether it may
version_added: 0.3.0
description:
  - Reads PCI bus, packages, versions that apt knows, files, units, kernel modules and the settings of the GPUs,
    all in one look.
  - Decides as P(gpuops.cluster.nvidia_driver_plan#filter) does, and fails with everything that speaks against it.
  - Made for the role P(gpuops.cluster.nvidia_driver#role), which acts on the answer.
  - Changes nothing. Where apt has no package lists at all, they are fetched, since nothing can be said without them.
options:
  settings:
    description:
      - The role's variables, without the prefix C(nvidia_driver_), as P(gpuops.cluster.nvidia_driver_plan#filter)
        wants them, with C(pinned), C(reboot_allowed) and C(gpu_settings).
    type: dict
    required: true
  distribution:
    description: The fact of this name.
    type: str
    required: true
  kernel:
    description: The running kernel, as C(uname -r) has it.
    type: str
    required: true
  gpu:
    description: Of the facts of M(gpuops.cluster.gpu_facts), C(state), C(pci_count) and C(driver).
    type: dict
    required: true
  packages:
    description: Patterns of dpkg-query for what may belong to a driver.
    type: list
    elements: str
    required: true
  files:
    description: What should be there besides packages.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where.
        type: path
        required: true
      state:
        description: What it should be. V(seen) may be anything; what it is, is in RV(files).
        type: str
        choices: [file, directory, absent, seen]
        default: file
      mode:
        description: Its mode as a string. C(0644) for files and C(0755) for directories where it is not given.
        type: str
      content:
        description: What a file should hold.
        type: str
      src:
        description: A file on the control node whose content it should have, found as M(ansible.builtin.copy) finds it.
        type: str
      program:
        description: The same for a program as M(gpuops.cluster.node_program) makes it.
        type: str
attributes:
  check_mode:
    description: Reads only, the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  action:
    description: Decides on the control node, where keys and files of the role are.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look, decide, and refuse what cannot work
  gpuops.cluster.nvidia_driver_state:
    settings: "{{ settings }}"
    distribution: "{{ ansible_facts.distribution }}"
    kernel: "{{ ansible_facts.kernel }}"
    gpu: "{{ ansible_facts.gpu }}"
    packages: ['*nvidia*', libcuda1*]
  register: plan

- name: Show what is to be done
  ansible.builtin.debug:
    var: plan.differs
"""

RETURN = r"""
differs:
  description: All that is not as it should be, a line each. Empty where there is nothing to do.
  returned: when nothing is refused
  type: list
  elements: str
  sample: [libcuda1 is not held]
release:
  description:
    - NVIDIA's number of the driver that is to be there. It is returned with refusals, too.
    - All other values of P(gpuops.cluster.nvidia_driver_plan#filter) are there as well, each under its own name.
  returned: when the host could be looked at
  type: str
  sample: 535.309.01
files:
  description:
    - Mode and SHA256 of each of O(files) with the state V(seen), or mode and C(directory), or nothing where nothing is.
  returned: when nothing is refused
  type: dict
  sample: {/etc/apt/preferences.d/50-gpuops-nvidia-driver: ""}
gpus_set:
  description: Whether the GPUs were asked and have all settings.
  returned: when nothing is refused
  type: bool
reboot:
  description: What waits for a reboot. Nothing yet; the role adds to it.
  returned: when nothing is refused
  type: list
  elements: str
waiting:
  description: Settings of GPUs that take effect at the next boot.
  returned: when nothing is refused
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_look as look
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_plan
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_differences import ANSWERS
from ansible_collections.gpuops.cluster.plugins.module_utils._package_index import Places


def main() -> None:
    suboptions = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["file", "directory", "absent", "seen"], "default": "file"},
        "mode": {"type": "str"},
        "content": {"type": "str"},
        "src": {"type": "str"},
        "program": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "required": True},
            "distribution": {"type": "str", "required": True},
            "kernel": {"type": "str", "required": True},
            "gpu": {"type": "dict", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "default": [], "options": suboptions},
        },
        supports_check_mode=True,
    )
    given, run = module.params, module.run_command
    trouble = look.fetch_lists(run, Places())
    if trouble:
        module.fail_json(msg=trouble)
    host = {"distribution": given["distribution"], "kernel": given["kernel"], "madison": None}
    host["probe"] = look.probe(run, given["packages"])
    # Which packages to ask for; the keys lie on the control node, which decides.
    keyless = {**given["settings"], "mok_key": "", "mok_certificate": ""}
    candidates = _nvidia_plan.plan(keyless, host).get("candidates", [])
    versions, trouble = look.madison(run, candidates) if candidates else ([], "")
    if trouble:
        module.fail_json(msg=trouble)
    wanted = given["settings"]["gpu_settings"]
    asks = any(wanted.values()) and given["gpu"]["state"] in ANSWERS
    dkms = module.get_bin_path("dkms") if given["settings"]["kernel_modules"] else None
    module.exit_json(
        changed=False,
        probe=host["probe"],
        madison=versions,
        files={entry["path"]: look.file_state(entry["path"]) for entry in given["files"]},
        units=look.units(run),
        dkms=run([dkms, "status"])[1] if dkms else "",
        gpu_settings=look.gpu_settings(wanted) if asks else None,
    )


if __name__ == "__main__":
    main()
