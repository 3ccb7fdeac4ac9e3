#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_program
short_description: Install a program of a role together with the parsers of this collection that it imports
description:
  - Packs a Python program and the module_utils of this collection that it imports into one executable file.
  - Programs that stay on a node so read GPUs and fabric with the very code that the facts modules use.
options:
  src:
    description: The program, looked up in the role's C(files).
    type: str
    required: true
  dest:
    description: Where the executable file goes.
    type: path
    required: true
  mode:
    description: Mode of the file.
    type: str
    default: "0755"
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: The file is an archive; no difference is shown.
    support: none
  action:
    description: Builds the file on the control node.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Install the health checks
  gpuops.cluster.node_program:
    src: node_health.py
    dest: /usr/local/lib/gpuops/node_health
"""

RETURN = r"""
dest:
  description: Where the file is.
  returned: success
  type: str
  sample: /usr/local/lib/gpuops/node_health
"""
