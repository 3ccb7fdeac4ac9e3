#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: audit_report
short_description: Compare the hosts of a fleet, and report drift and health problems
version_added: 0.1.0
description:
  - Compares what M(gpuops.cluster.audit_info) saw on all hosts, within hosts of the same kind, and shows who differs
    from the majority, what is wrong on which host, and what most hosts have.
  - Prints a table and writes C(audit.json) and C(audit.html) on the control node, in check mode as well.
  - Runs on the control node; use C(run_once).
options:
  hosts:
    description:
      - By host name, the registered result of M(gpuops.cluster.audit_info), also where it failed or the host was
        unreachable. Such hosts are listed as absent.
      - Without it only the other options are checked, so that a mistake in them is found before any host is looked at.
    type: dict
  kinds:
    description:
      - Groups of the inventory. A host is compared with the hosts of the first of these groups that it is in.
      - Hosts in none of them are compared with each other.
    type: list
    elements: str
    default: []
  gpu_hosts:
    description: Hosts that should have GPUs; having none is a problem there, and having no driver is one there only.
    type: list
    elements: str
    default: []
  ignore:
    description:
      - What is not judged. Items (C(kernel), …), problem codes (C(port_down)), or a code and a device
        (C(port_down mlx5_3)).
      - Values and problems remain in the part C(hosts) of C(audit.json).
    type: list
    elements: str
    default: []
  fail_on:
    description: What the task fails for, V(drift), V(health) or both. The report is written before.
    type: list
    elements: str
    default: []
  report_dir:
    description: Folder on the control node for C(audit.json) and C(audit.html).
    type: path
    default: reports
attributes:
  check_mode:
    description: Changes no host; the report is written in check mode as well.
    support: full
  diff_mode:
    description: Changes no host.
    support: none
  action:
    description: Runs on the control node alone.
    support: full
seealso:
  - module: gpuops.cluster.audit_info
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look at each host
  gpuops.cluster.audit_info:
  register: look
  ignore_unreachable: true

- name: Compare them
  gpuops.cluster.audit_report:
    hosts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'look'))) }}"
    kinds: [h100_nodes, a100_nodes]
    gpu_hosts: "{{ groups['h100_nodes'] + groups['a100_nodes'] }}"
    ignore: [kernel, port_down mlx5_3]
    fail_on: [health]
  run_once: true
"""

RETURN = r"""
verdict:
  description: V(clean), or V(findings) when there is any problem, difference or absent host.
  returned: when O(hosts) is given
  type: str
  sample: findings
counts:
  description:
    - How many hosts there are, gave an answer, are absent, have problems, and differ from others.
    - C(drift) counts the items in which any host differs.
  returned: when O(hosts) is given
  type: dict
  sample: {hosts: 1000, answered: 999, absent: 1, unhealthy: 1, drift: 1, differing: 3}
report:
  description: Path of the page on the control node.
  returned: when O(hosts) is given
  type: str
  sample: reports/audit.html
"""
