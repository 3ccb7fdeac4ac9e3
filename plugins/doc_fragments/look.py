# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that modules which only look at a host have in common."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Reads only, so that check mode makes no difference.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
"""

    NVIDIA_SMI = r"""
options:
  nvidia_smi:
    description:
      - Path of C(nvidia-smi).
      - Found in C(PATH) when not given.
    type: path
  timeout:
    description: Seconds that one call of C(nvidia-smi) may take. Its process group is killed after that.
    type: int
    default: 60
"""

    SYSFS = r"""
options:
  sysfs_root:
    description: Where sysfs is mounted.
    type: path
    default: /sys
"""
