#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: settings of Ethernet links, compared, applied and read back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ethernet_links
short_description: MTU, rings, channels, flow control, offloads, coalescing and RoCE priorities of Ethernet links
description:
  - Compares the wanted settings with what the driver reports, applies what differs and reads the result back.
  - A setting that the driver refuses or does not have is reported in RV(left_out) with the driver's own words.
  - A change that restarts a link waits for consent (O(allow_restart)) while the link has a carrier.
  - The link that carries the Ansible connection is left alone unless O(allow_connection) is set. Then a timer of
    systemd undoes the change after O(rollback_after) seconds, unless the program is called with C(confirm) before.
  - Changes the running system only. The role C(gpuops.cluster.ethernet) makes it persistent.
version_added: 0.1.0
author:
  - The gpuops.cluster contributors (@gpuops)
requirements:
  - iproute2, and ethtool where more than the MTU is asked for
attributes:
  check_mode:
    description: Predicts the changes without making them.
    support: full
  diff_mode:
    description: Shows the settings before and after.
    support: full
options:
  interfaces:
    description:
      - Wanted settings. Each element names its interfaces by C(name) (a shell pattern), C(mac), C(pci), C(driver),
        or C(rdma).
      - Settings are C(mtu), and dictionaries C(ring), C(channels), C(pause), C(offloads), C(coalesce), C(roce),
        C(cm) (C(tos), the traffic class of RDMA connections), C(ecn) (congestion control by priority).
    type: list
    elements: dict
    required: true
  allow_restart:
    description: Allows changes that restart the queues or the link of an interface that has a carrier.
    type: bool
    default: false
  allow_connection:
    description: Allows changes of the link that carries the Ansible connection.
    type: bool
    default: false
  rollback_after:
    description: Seconds after which an unconfirmed change of the connection's link is undone.
    type: int
    default: 60
  program:
    description: Program on the host that undoes a change when it is called with C(restore).
    type: path
    default: /usr/local/lib/gpuops/ethernet
"""

EXAMPLES = r"""
- name: Jumbo frames and the largest rings on the cluster links
  gpuops.cluster.ethernet_links:
    interfaces:
      - driver: mlx5_core
        mtu: 9000
        ring: {rx: max, tx: max}
"""

RETURN = r"""
changes:
  description: Settings that were changed, skipped or wait for consent, with values before and after.
  returned: always
  type: list
  elements: dict
left_out:
  description: What could not be set, and why, one sentence each.
  returned: always
  type: list
  elements: str
waits:
  description: What waits for consent or a reboot, one sentence each.
  returned: always
  type: list
  elements: str
connection:
  description: Interfaces that carry the Ansible connection.
  returned: always
  type: list
  elements: str
protected:
  description: MAC addresses of interfaces that must not be changed without consent.
  returned: always
  type: list
  elements: str
rollback_armed:
  description: Whether a timer will undo the change unless it is confirmed.
  returned: always
  type: bool
links:
  description: Interfaces with an address, their MTU and addresses, after the change.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_links as engine
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_look as look


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "interfaces": {"type": "list", "elements": "dict", "required": True},
            "allow_restart": {"type": "bool", "default": False},
            "allow_connection": {"type": "bool", "default": False},
            "rollback_after": {"type": "int", "default": 60},
            "program": {"type": "path", "default": "/usr/local/lib/gpuops/ethernet"},
        },
        supports_check_mode=True,
    )
    try:
        result = engine.converge(module.params, apply=not module.check_mode)
    except look.BadRequest as error:
        module.fail_json(msg=str(error))
    changed = [c for c in result["changes"] if c["state"] == "changed"]
    result["diff"] = [
        {
            "before_header": f"{c['link']} {c['group']}",
            "after_header": f"{c['link']} {c['group']}",
            "before": {k: c["before"].get(k) for k in c["wanted"]},
            "after": c["wanted"] if module.check_mode else {k: c["after"].get(k) for k in c["wanted"]},
        }
        for c in changed
    ]
    module.exit_json(links=look.addresses(), **result)


if __name__ == "__main__":
    main()
