# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: is the driver there and answering, at one version?"""

from __future__ import annotations

DOCUMENTATION = r"""
name: nvidia_driver_verdict
short_description: Is the NVIDIA driver there and answering, at one version?
description:
  - Compares the packages, the answer of C(nvidia-smi) and the loaded module, by full version.
positional: _input, gpu, present, reboot, kernel_log, predicted
options:
  _input:
    description: What P(gpuops.cluster.nvidia_driver_plan#filter) returned.
    type: dict
    required: true
  gpu:
    description: What M(gpuops.cluster.gpu_facts) returned.
    type: dict
    required: true
  present:
    description: Lines C(state|package|version) of C(dpkg-query), after the installation.
    type: list
    elements: str
    required: true
  reboot:
    description: What waits for a reboot.
    type: list
    elements: str
    required: true
  kernel_log:
    description: Lines of the kernel's log about a module that did not load.
    type: list
    elements: str
    required: true
  predicted:
    description: Whether nothing was really changed, as in check mode.
    type: bool
    default: false
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Judge
  ansible.builtin.set_fact:
    verdict: "{{ plan | gpuops.cluster.nvidia_driver_verdict(ansible_facts.gpu, packages, [], []) }}"
"""

RETURN = r"""
_value:
  description: C(wrong), what is not as it should be, and C(skipped), what could not be asked and why.
  type: dict
"""

from typing import Any


def nvidia_driver_verdict(
    plan: dict[str, Any],
    gpu: dict[str, Any],
    present: list[str],
    reboot: list[str],
    kernel_log: list[str],
    predicted: bool = False,
) -> dict[str, list[str]]:
    # Ansible loads all filters of a collection for any of them.
    from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_verdict

    return _nvidia_verdict.verdict(plan, gpu, present, reboot, kernel_log, predicted)


class FilterModule:
    """The filter, under its name."""

    def filters(self) -> dict[str, Any]:
        return {"nvidia_driver_verdict": nvidia_driver_verdict}
