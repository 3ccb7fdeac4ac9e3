#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: audit_info
short_description: What an audit compares of a host, and what is wrong with it
version_added: 0.1.0
description:
  - Puts what M(gpuops.cluster.gpu_facts) and M(gpuops.cluster.fabric_facts) see, and what is installed, into short
    texts that can be compared with those of other hosts. M(gpuops.cluster.audit_report) compares them.
  - Reads only. Packages are read from dpkg's own file; elsewhere libraries are found, and package versions are not.
options:
  environments_root:
    description: Directory of the environments that the role P(gpuops.cluster.pytorch_env#role) makes.
    type: path
    default: /opt/gpuops/envs
seealso:
  - module: gpuops.cluster.audit_report
  - module: gpuops.cluster.gpu_facts
  - module: gpuops.cluster.fabric_facts
extends_documentation_fragment:
  - gpuops.cluster.look
  - gpuops.cluster.look.nvidia_smi
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look at the host
  gpuops.cluster.audit_info:
  register: look

- name: Show the kernel and the driver
  ansible.builtin.debug:
    msg: "{{ look.audit.versions.kernel }}, {{ look.audit.versions.driver_loaded }}"
"""

RETURN = r"""
audit:
  description: The host in short.
  returned: always
  type: dict
  contains:
    versions:
      description: One text for each item; V(none) where it is known to be absent, null where it is not known.
      returned: always
      type: dict
      sample:
        os: Ubuntu 22.04.5 LTS
        kernel: 5.15.0-125-generic
        gpu_boards: 8 x 10de:2330
        gpus: 8 x NVIDIA H100 80GB HBM3
        gpu_settings: ECC on, MIG off, persistence on, 700 W
        driver_installed: 550.54.15
        driver_loaded: 550.54.15 open
        fabric_manager: 550.54.15
        cuda_toolkits: 12.4 (default)
        nccl: 2.21.5-1+cuda12.4
        torch: "torch: 2.5.1+cu124, lock 1f2e3d4c5b6a"
        torch_nccl: "torch: 2.21.5"
        fabric_firmware: 8 x MT_0000000838 28.39.1002
        network: 8 x InfiniBand 400 Gbit/s; 2 x Ethernet 100 Gbit/s MTU 9000
        slurm: 23.11.4
    problems:
      description:
        - What is wrong, by the codes of M(gpuops.cluster.gpu_facts) (its problems, and its states other than V(ok),
          V(degraded) and V(no_gpu)) and of M(gpuops.cluster.fabric_facts).
        - C(device) is empty where the whole host is meant.
      returned: always
      type: list
      elements: dict
      sample: [{code: row_remap_failed, device: GPU 3, detail: "a memory row could not be remapped"}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _audit_look, _fabric_facts, _gpu_facts


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nvidia_smi": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
            "environments_root": {"type": "path", "default": "/opt/gpuops/envs"},
        },
        supports_check_mode=True,
    )
    params = module.params
    nvidia_smi = module.get_bin_path(params["nvidia_smi"] or "nvidia-smi")
    gpu = _gpu_facts.gather(_gpu_facts.caller(nvidia_smi, params["timeout"]) if nvidia_smi else None)
    fabric = _fabric_facts.gather()
    found = {
        "versions": _audit_look.versions(gpu, fabric, params["environments_root"]),
        "problems": _audit_look.problems(gpu, fabric),
    }
    module.exit_json(changed=False, audit=found)


if __name__ == "__main__":
    main()
