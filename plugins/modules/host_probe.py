#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_probe
short_description: First look at a host that needs no Python there
description:
  - Asks a host, in one shell command, for what must be known before any module can run on it.
  - Measures how far the host's clock is from the control node's.
options:
  names:
    description: Host names to resolve on the host.
    type: list
    elements: str
    default: []
  python:
    description: The interpreter that modules will use; its version is asked.
    type: str
    default: python3
attributes:
  check_mode:
    description: Reads only, the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  action:
    description: Runs on the control node, through the host's connection.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look at the host
  gpuops.cluster.host_probe:
    names: [ctl, n1]
  register: look
"""

RETURN = r"""
answers:
  description: Whether the host could be connected to. A host that does not answer is reported, not unreachable.
  returned: always
  type: bool
  sample: true
reason:
  description: Why it could not, empty when it could.
  returned: always
  type: str
  sample: ""
probe:
  description: What the host answered; values that it did not give are null. Empty for a host that does not answer.
  returned: always
  type: dict
  sample:
    hostname: n1
    machine: x86_64
    kernel: 6.1.0-50-amd64
    os: {id: debian, version: "12"}
    python: 3.11.2
    free_mib: {/: 81920}
    resolves: {ctl: ["10.0.0.10"]}
    clock_offset_s: 0.004
    clock_error_s: 0.021
"""
