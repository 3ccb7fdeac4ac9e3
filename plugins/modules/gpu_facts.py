#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Facts about the NVIDIA GPUs of a host and their health
version_added: 0.1.0
description:
  - Asks C(nvidia-smi -q -x) and C(nvidia-smi topo -m) once each, and C(nvidia-smi -L) where there are MIG devices;
    the rest comes from C(/sys) and C(/proc). Nothing has to be installed for it.
  - Never fails because a GPU or its driver is sick. It reports instead, by C(state), C(reason) and C(problems).
  - A driver that hangs costs at most O(timeout) seconds a call.
options:
  proc_root:
    description: Where proc is mounted.
    type: path
    default: /proc
attributes:
  facts:
    description: Returns C(ansible_facts.gpu).
    support: full
seealso:
  - module: gpuops.cluster.fabric_facts
extends_documentation_fragment:
  - gpuops.cluster.look
  - gpuops.cluster.look.nvidia_smi
  - gpuops.cluster.look.sysfs
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look at the GPUs
  gpuops.cluster.gpu_facts:

- name: Refuse hosts whose GPUs are not healthy
  ansible.builtin.assert:
    that: ansible_facts.gpu.state == 'ok'
    fail_msg: "{{ inventory_hostname }}: {{ ansible_facts.gpu.reason }}"

- name: Look with the nvidia-smi of another place, and give up early
  gpuops.cluster.gpu_facts:
    nvidia_smi: /usr/lib/nvidia/current/nvidia-smi
    timeout: 15
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    gpu:
      description: GPUs of the host. A value is null where the driver did not report it.
      returned: always
      type: dict
      contains:
        state:
          description:
            - V(ok), or V(degraded) when the driver answers and there is any problem.
            - V(no_gpu), neither hardware nor devices reported. V(no_driver), hardware but no C(nvidia-smi).
            - V(driver_not_loaded), C(nvidia-smi) cannot talk to the driver.
            - V(driver_mismatch), library and kernel module differ.
            - V(no_answer), a call took too long or printed no report.
          returned: always
          type: str
          sample: ok
        reason:
          description: One sentence that explains the state. Empty when it is V(ok).
          returned: always
          type: str
          sample: ""
        pci_count:
          description: NVIDIA display and 3D controllers on the PCI bus, with or without a driver.
          returned: always
          type: int
          sample: 8
        pci_devices:
          description: Those controllers, with the device id and class as sysfs shows them.
          returned: always
          type: list
          elements: dict
          sample: [{address: "0000:1b:00.0", device_id: "0x2330", class: "0x030200", numa_node: 0}]
        nvswitch_count:
          description: NVSwitches on the PCI bus. Boards of the fifth NVLink generation show none.
          returned: always
          type: int
          sample: 4
        count:
          description: GPUs that the driver reported.
          returned: always
          type: int
          sample: 8
        driver:
          description:
            - C(version), of the installed driver as C(nvidia-smi) tells it. C(loaded), of the kernel module.
            - C(cuda), the newest CUDA version that the driver runs. C(flavour), V(open) or V(proprietary).
          returned: always
          type: dict
          sample: {version: "550.54.15", loaded: "550.54.15", cuda: "12.4", flavour: open}
        mixed:
          description: Whether there is more than one product.
          returned: always
          type: bool
          sample: false
        devices:
          description:
            - The GPUs in the driver's order.
            - C(remapped_rows) and C(retired_pages) are null on GPUs that do not have them.
          returned: always
          type: list
          elements: dict
          sample:
            - index: 0
              minor: 0
              uuid: GPU-65fdf193-056e-4074-af80-9dca83beb692
              name: NVIDIA H100 80GB HBM3
              architecture: Hopper
              pci: "0000:1b:00.0"
              memory_mib: 81559
              numa_node: 0
              cpus: 0-51
              persistence: true
              mig: {enabled: false, pending: false, devices: []}
              ecc:
                enabled: true
                uncorrectable_volatile: 0
                uncorrectable_aggregate: 0
                correctable_volatile: 0
                correctable_aggregate: 0
              remapped_rows: {correctable: 0, uncorrectable: 0, pending: false, failed: false}
              retired_pages:
              pcie: {generation: 5, generation_max: 5, width: 16, width_max: 16}
              power_limit_w: 700.0
              temperature_c: 31
              throttle_reasons: [gpu_idle]
              problems: []
        topology:
          description:
            - The matrix of C(nvidia-smi topo -m), V(null) where it has no answer. A link that it does not show is null.
            - C(nvlink) is null without NVLink.
          returned: always
          type: dict
          sample:
            gpus: [[X, NV18], [NV18, X]]
            nics: [{name: mlx5_0, gpus: [PIX, NODE]}]
            nvlink: {links_per_gpu: 18, generation: 4}
        problems:
          description:
            - All problems. C(device) is the index of the GPU, null for the host.
            - Codes are V(gpu_lost), V(gpu_missing), V(unknown_error), V(ecc_uncorrectable), V(row_remap_pending),
              V(row_remap_failed), V(page_retirement_pending), V(nvlink_inactive), V(pcie_degraded),
              V(thermal_slowdown), V(power_brake), V(mig_pending), V(inforom_corrupt), V(fabric_not_ready), V(xid),
              V(report_truncated) and V(not_permitted).
          returned: always
          type: list
          elements: dict
          sample: [{code: row_remap_failed, device: 3, detail: "a memory row could not be remapped"}]
        cuda_toolkits:
          description: CUDA toolkits under C(/usr/local), and the distribution's own.
          returned: always
          type: list
          elements: dict
          sample: [{version: "12.4", path: /usr/local/cuda-12.4, default: true}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._gpu_facts import caller, gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nvidia_smi": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "proc_root": {"type": "path", "default": "/proc"},
        },
        supports_check_mode=True,
    )
    params = module.params
    nvidia_smi = module.get_bin_path(params["nvidia_smi"] or "nvidia-smi")
    ask = caller(nvidia_smi, params["timeout"]) if nvidia_smi else None
    facts = gather(ask, params["sysfs_root"], params["proc_root"])
    module.exit_json(changed=False, ansible_facts={"gpu": facts})


if __name__ == "__main__":
    main()
