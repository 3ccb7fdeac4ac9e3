# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: what a node's hardware should reach, small enough to gather from many nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gate_capability
short_description: What bus bandwidth a node's hardware should reach, with the derivation
description:
  - Derives from M(gpuops.cluster.gpu_facts) and M(gpuops.cluster.fabric_facts) what NCCL should reach inside the node
    and what its network carries, and says in words and numbers why.
  - M(gpuops.cluster.nccl_gate) takes the result for each node.
positional: _input, fabric, processor, nics
options:
  _input:
    description: The fact C(gpu).
    type: dict
    required: true
  fabric:
    description: The fact C(fabric).
    type: dict
    default: {}
  processor:
    description: Name of the processor, which decides what passes between sockets.
    type: str
    default: ""
  nics:
    description: Names of the RDMA devices that NCCL uses; empty means those beside a GPU, or all if none is.
    type: list
    elements: str
    default: []
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Show what this node should reach
  ansible.builtin.debug:
    msg: "{{ (ansible_facts.gpu | gpuops.cluster.gate_capability(ansible_facts.fabric)).peak }}"
"""

RETURN = r"""
_value:
  description:
    - C(state), C(reason), C(problems), C(gpus), C(product), C(driver), C(mig), C(labels), and the figures C(ring),
      C(peak) and C(network), each with C(gbps) (GB/s, null where nothing is known) and C(why).
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._gate_model import capability


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gate_capability": capability}
