#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: /etc/nccl.conf of one host, from what its facts prove."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_conf
short_description: Write the NCCL environment of a host from its facts
description:
  - Chooses the socket interface by its exact name and the RDMA ports that carry collectives, and says why in a comment
    above each line. What facts do not prove is not written.
  - A file that was not written by this module is kept as a backup once.
version_added: 0.1.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Predicts the file without writing it.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
options:
  path:
    description: File to write.
    type: path
    default: /etc/nccl.conf
  fabric:
    description: Facts of M(gpuops.cluster.fabric_facts).
    type: dict
    required: true
  socket_subnet:
    description:
      - Network in CIDR notation in which exactly one interface of the host must have an address.
      - When empty, the interface of the default route is taken.
    type: str
    default: ""
  socket_exact:
    description: Writes the name in the exact form (C(=eth0)), which does not match C(eth01).
    type: bool
    default: true
  hcas:
    description: RDMA devices to use, with or without C(:PORT); empty means choose.
    type: list
    elements: str
    default: []
  hcas_excluded:
    description: RDMA devices never to use, with or without C(:PORT).
    type: list
    elements: str
    default: []
  hca_subnets:
    description: Networks in which RoCE ports must have an address.
    type: list
    elements: str
    default: []
  gid_index:
    description:
      - Writes C(NCCL_IB_GID_INDEX) where all ports have a routable RoCE v2 entry at one index.
      - Only NCCL before 2.21 needs it; the kernel may move an address to another index when a port flaps.
    type: bool
    default: false
  environment:
    description: More variables; they win over the derived ones.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Look at the fabric
  gpuops.cluster.fabric_facts:

- name: Write the NCCL environment
  gpuops.cluster.nccl_conf:
    fabric: "{{ ansible_facts.fabric }}"
    socket_subnet: 10.0.0.0/16
"""

RETURN = r"""
lines:
  description: The variables with value and reason.
  returned: always
  type: list
  elements: dict
left_out:
  description: What was left out, and why.
  returned: always
  type: list
  elements: str
backup_file:
  description: Copy of a file that was not ours.
  returned: when one was made
  type: str
"""

import ipaddress
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_look as look
from ansible_collections.gpuops.cluster.plugins.module_utils import _nccl_conf as engine
from ansible_collections.gpuops.cluster.plugins.module_utils import _roce

HEADER = "Written by gpuops.cluster.nccl_conf from the facts of this host; changes are lost."


def default_route() -> str:
    """The interface of the default route with the least metric, of either family; empty when there is none."""
    for family in ("-4", "-6"):
        routes = json.loads(look.run("ip", family, "-j", "route", "show", "default")[1] or "[]")
        if routes:
            return str(min(routes, key=lambda r: r.get("metric", 0)).get("dev", ""))
    return ""


def pci_paths() -> tuple[dict[str, str], list[str]]:
    """Paths in the PCI tree: of every device by address, and of the NVIDIA GPUs."""
    paths, gpus = {}, []
    for device in sorted(Path("/sys/bus/pci/devices").glob("*")):
        paths[device.name] = str(device.resolve())
        if look.read(device / "vendor") == "0x10de" and look.read(device / "class").startswith(("0x0300", "0x0302")):
            gpus.append(paths[device.name])
    return paths, gpus


def derive(params: dict[str, Any]) -> tuple[list[engine.Line], list[str]]:
    lines, left_out = [], []
    try:
        lines.append(
            engine.socket_line(look.addresses(), params["socket_subnet"], default_route(), params["socket_exact"])
        )
    except engine.Undecided as error:
        if params["socket_subnet"]:
            raise
        left_out.append(f"NCCL_SOCKET_IFNAME: {error}")
    paths, gpus = pci_paths()
    ports = engine.active_ports(params["fabric"])
    choice = engine.choose(ports, paths, gpus, params["hcas"], params["hcas_excluded"], params["hca_subnets"])
    classes = {port.name: _roce.read_tos(port.device, port.number) for port in choice.ports}
    more, unproven = engine.hca_lines(choice, params["gid_index"], classes)
    extra = {str(k): str(v) for k, v in params["environment"].items()}
    lines = [line for line in lines + more if line.name not in extra]
    lines += [engine.Line(k, v.strip(), "from infiniband_nccl_environment") for k, v in extra.items()]
    return lines, left_out + unproven


def write(module: AnsibleModule, path: str, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    module.atomic_move(name, path)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/nccl.conf"},
            "fabric": {"type": "dict", "required": True},
            "socket_subnet": {"type": "str", "default": ""},
            "socket_exact": {"type": "bool", "default": True},
            "hcas": {"type": "list", "elements": "str", "default": []},
            "hcas_excluded": {"type": "list", "elements": "str", "default": []},
            "hca_subnets": {"type": "list", "elements": "str", "default": []},
            "gid_index": {"type": "bool", "default": False},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        for subnet in [s for s in [module.params["socket_subnet"], *module.params["hca_subnets"]] if s]:
            ipaddress.ip_network(subnet)
        lines, left_out = derive(module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    before = Path(path).read_text(encoding="utf-8") if os.path.exists(path) else ""
    text = engine.render(lines, HEADER)
    result: dict[str, Any] = {
        "changed": text != before,
        "lines": [line._asdict() for line in lines],
        "left_out": left_out,
        "diff": {"before": before, "after": text, "before_header": path, "after_header": path},
    }
    if result["changed"] and not module.check_mode:
        if before and HEADER not in before:
            result["backup_file"] = module.backup_local(path)
        write(module, path, text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
