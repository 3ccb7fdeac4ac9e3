# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: what the role cuda_toolkit has to do on a host, and everything that speaks against it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cuda_toolkit_plan
short_description: What the role cuda_toolkit has to do on a host, and what speaks against it
description:
  - From the role's variables and what was read from the host, decides which packages and repositories are wanted,
    which local repositories are superseded, and what the role must refuse.
  - Each refusal names the value seen and the variable to set.
positional: _input
options:
  _input:
    description: The role's variables, without the prefix C(cuda_toolkit_).
    type: dict
    required: true
  host:
    description:
      - What was read from the host.
      - C(distribution), C(release) and C(machine), such as V(Debian), V(12) and V(x86_64).
      - C(dpkg), lines C(state|package|version), and C(sources), C(file:line), all lines of files
        that name a CUDA repository.
      - C(link), the stat of C(/usr/local/cuda), and C(gpus), the devices of M(gpuops.cluster.gpu_facts);
        where there are none, C(pci), lines of vendor, device and class on the bus.
      - C(candidate), the version of the distribution's own toolkit, and C(driver), the installed driver's.
    type: dict
    required: true
  file:
    description:
      - The repository file, when it has to be brought.
      - C(checksum), its sha256, null when not known before the download.
      - C(size) in bytes, as a number or, of a server, as text; null when the file is not there.
      - C(free), pairs of mount point and free bytes for C(/var/cache), C(/var) and C(/usr/local), in this order.
      - C(readonly), folders that cannot be written.
    type: dict
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    plan: "{{ {'version': '13.0', 'source': 'network'} | gpuops.cluster.cuda_toolkit_plan(host=seen) }}"
"""

RETURN = r"""
_value:
  description:
    - C(problems), the refusals as messages; when the version is unusable, nothing else.
    - C(package) and C(version) to install (empty where any version will do), C(family) (patterns of all
      packages of this release), C(installed), C(current), C(compiler),
      C(held), packages of this release that have to be let go for another build of it,
      and C(cut), packages that were cut off while they were unpacked.
    - C(repository), its package, with C(list), C(unpacked), C(leftover) and C(bring), and C(bring_keyring).
    - C(holds), what the repository file says of itself if it is what its name says, C(package|version|architecture).
    - C(old_packages) and C(old_files) to remove, C(old_entries), lines to remove from files that name others, too,
      and C(notes), what works with a restriction.
    - C(distro), C(repository_architecture), C(target), C(short), C(prefix), C(nvcc), C(architectures), C(link).
  type: dict
"""

from typing import Any


def cuda_toolkit_plan(
    settings: dict[str, Any], host: dict[str, Any], file: dict[str, Any] | None = None
) -> dict[str, Any]:
    # Ansible loads every filter in the process of each task, so what this one needs is loaded when it is called.
    from ansible_collections.gpuops.cluster.plugins.module_utils import _cuda_toolkit_plan

    return _cuda_toolkit_plan.cuda_toolkit_plan(settings, host, file)


class FilterModule:
    """The filter, under its name."""

    def filters(self) -> dict[str, Any]:
        return {"cuda_toolkit_plan": cuda_toolkit_plan}
