#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Say what a role skipped on a host and why, and what waits for a reboot
description:
  - Keeps the lines in the facts C(gpuops_skipped), C(gpuops_reboot_required) and C(gpuops_notes).
  - Each is a dictionary from role to lines.
  - The callback P(gpuops.cluster.summary#callback) prints them at the end of the run.
options:
  role:
    description: Name of the role.
    type: str
    required: true
  skipped:
    description: What was skipped, one line each with its reason.
    type: list
    elements: str
    default: []
  reboot_required:
    description: What takes effect at the next boot only, one line each.
    type: list
    elements: str
    default: []
  notes:
    description: What else the user should know of this host, such as what is wrong with it, one line each.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Changes nothing, the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  action:
    description: Runs on the control node alone.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Report | Say what was skipped
  gpuops.cluster.report:
    role: ethernet
    skipped: ["eth0 rings: Operation not supported"]
"""

RETURN = r"""
ansible_facts:
  description: The lines of all roles so far.
  returned: always
  type: dict
  sample:
    gpuops_skipped: {ethernet: ["eth0 rings: Operation not supported"]}
    gpuops_reboot_required: {ethernet: []}
    gpuops_notes: {ethernet: []}
"""
