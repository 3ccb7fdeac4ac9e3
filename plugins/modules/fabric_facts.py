#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_facts
short_description: Facts about the Ethernet interfaces and RDMA devices of a host
version_added: 0.1.0
description:
  - Reads C(/sys/class/net) and C(/sys/class/infiniband), so that no tool needs to be installed.
  - Never fails because a port is down. It reports instead, by C(problems).
attributes:
  facts:
    description: Returns C(ansible_facts.fabric).
    support: full
seealso:
  - module: gpuops.cluster.gpu_facts
extends_documentation_fragment:
  - gpuops.cluster.look
  - gpuops.cluster.look.sysfs
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look at the network
  gpuops.cluster.fabric_facts:

- name: Show the RDMA ports that do not work
  ansible.builtin.debug:
    msg: "{{ ansible_facts.fabric.problems | map(attribute='detail') }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    fabric:
      description: Network of the host. A value is null where the kernel does not tell it.
      returned: always
      type: dict
      contains:
        ethernet:
          description:
            - Ethernet interfaces, from C(/sys/class/net).
            - C(kind) is V(physical), V(virtual_function), V(representor), V(bond), V(vlan), V(bridge) or V(virtual).
            - C(carrier) is null while the interface is down, C(speed_mbps) while it has no carrier.
            - C(master) is the bond or bridge that an interface belongs to.
          returned: always
          type: list
          elements: dict
          sample:
            - name: enp27s0f0np0
              kind: physical
              mac: b8:3f:d2:89:eb:46
              driver: mlx5_core
              pci: "0000:1b:00.0"
              numa_node: 0
              speed_mbps: 100000
              mtu: 9000
              carrier: true
              master:
              rdma_device: mlx5_1
        rdma:
          description:
            - RDMA devices, from C(/sys/class/infiniband).
            - C(pcie) has the generation and width of the link, and what device and slot both offer at most.
            - C(lanes) and C(speed) are those of the link, such as 4 and V(NDR). C(gids) lists those in use.
          returned: always
          type: list
          elements: dict
          sample:
            - name: mlx5_0
              model: MT4129
              guid: a088:c266:6b0c:5129
              firmware: 28.39.1002
              board: MT_0000000838
              pci: "0000:1a:00.0"
              virtual_function: false
              numa_node: 0
              pcie: {generation: 5, generation_max: 5, width: 16, width_max: 16}
              ports:
                - port: 1
                  state: active
                  physical_state: LinkUp
                  link_layer: ethernet
                  rate_gbps: 400.0
                  lanes: 4
                  speed: NDR
                  lid: 0
                  sm_lid: 0
                  netdevs: [eth2]
                  gids:
                    - {index: 3, gid: "0000:0000:0000:0000:0000:ffff:0a00:0001", type: RoCE v2, netdev: eth2}
        problems:
          description:
            - Codes are V(port_down), V(port_initializing), V(rate_degraded), V(pcie_degraded), V(no_lid)
              and V(not_permitted).
            - An Ethernet port that was disabled is not a problem.
          returned: always
          type: list
          elements: dict
          sample: [{code: port_down, device: mlx5_11, detail: "mlx5_11:1 is down, physical state Polling"}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._fabric_facts import gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={"sysfs_root": {"type": "path", "default": "/sys"}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, ansible_facts={"fabric": gather(module.params["sysfs_root"])})


if __name__ == "__main__":
    main()
