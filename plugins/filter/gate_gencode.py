# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the value of NVCC_GENCODE for a fleet of GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gate_gencode
short_description: The NVCC_GENCODE that covers every GPU of a fleet and nothing else
description:
  - nccl-tests' default names architectures that older and newer CUDA toolkits do not know, which breaks its build.
positional: _input, nvcc, only
options:
  _input:
    description: Elements of C(devices) of the fact C(gpu), of all nodes.
    type: list
    elements: dict
    required: true
  nvcc:
    description: What C(nvcc --list-gpu-arch) printed; empty when it was not asked.
    type: str
    default: ""
  only:
    description: Compute capabilities such as V(90) to use instead of the devices' own.
    type: list
    elements: str
    default: []
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Flags for this node
  ansible.builtin.debug:
    msg: "{{ (ansible_facts.gpu.devices | gpuops.cluster.gate_gencode).flags }}"
"""

RETURN = r"""
_value:
  description: C(flags) for NVCC_GENCODE, and C(problem), a sentence when a GPU is unknown or does not fit the toolkit.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._gate_arch import gencode


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gate_gencode": gencode}
