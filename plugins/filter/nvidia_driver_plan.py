# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: what the role nvidia_driver has to do on a host, and everything that speaks against it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nvidia_driver_plan
short_description: What the role nvidia_driver has to do on a host, and what speaks against it
description:
  - From the role's variables and what was read from the host, chooses the flavour of the kernel modules and one version
    for the whole family of packages, and collects everything that the role must refuse.
  - Each refusal names the value seen and the variable to set.
positional: _input
options:
  _input:
    description: The role's variables, without the prefix C(nvidia_driver_).
    type: dict
    required: true
  host:
    description:
      - What was read from the host.
      - C(distribution), and C(kernel) as C(uname -r) has it.
      - C(probe), lines that the look of M(gpuops.cluster.nvidia_driver_state) prints.
      - C(madison), lines of C(apt-cache madison), null before it was asked.
    type: dict
    required: true
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    plan: "{{ {'source': 'distribution', 'version': '535'} | gpuops.cluster.nvidia_driver_plan(host=seen) }}"
"""

RETURN = r"""
_value:
  description:
    - C(problems), the refusals as messages.
    - C(flavour) of the modules, C(candidates), the packages that are wanted, and C(resolved), whether apt knows them.
    - C(packages), package to version, C(release), NVIDIA's number, and C(change), whether something else is installed,
      and C(unhold), installed packages that no repository has in the new version.
    - C(bring_repository), whether NVIDIA's package with key and source is to be installed.
    - C(local_folder), where debs of source local lie on the host.
    - C(pins), pairs of package globs and version for apt's preferences, and C(headers), packages for the kernels.
    - C(fabric), C(nvlsm), C(imex), whether fabric manager, NVLSM and IMEX are needed.
    - C(changed_since_start), whether packages of the driver were changed while the system ran.
    - C(nouveau), whether that is loaded, C(installed), all packages found,
      C(interrupted), whether dpkg was, C(cut), packages that were cut off while they were unpacked and that apt
      cannot bring again, C(cut_first), those that stand in a repository's way, C(broken), whether some are not whole,
      C(half), unwanted packages that an earlier failure left half-configured, C(others), a pattern of packages that
      are named like a driver and are none,
      C(gpu_settings), whether the boot unit has settings,
      C(old_repositories), local repositories of other drivers,
      and C(services) to stop while the driver is changed.
  type: dict
"""

from typing import Any


def nvidia_driver_plan(settings: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    # Ansible loads all filters of a collection for any of them.
    from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_plan

    return _nvidia_plan.plan(settings, host)


class FilterModule:
    """The filter, under its name."""

    def filters(self) -> dict[str, Any]:
        return {"nvidia_driver_plan": nvidia_driver_plan}
