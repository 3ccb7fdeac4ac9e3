# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules of Slurm's accounting have in common. Private to this collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description: Whether it is there.
    type: str
    choices: [present, absent]
    default: present
  cluster:
    description: C(ClusterName). Where slurmdbd knows one cluster only, it is that one.
    type: str
attributes:
  check_mode:
    description: Predicts the commands.
    support: full
  diff_mode:
    description: Shows what was set and what will be, of the things that are named.
    support: full
notes:
  - Run it where C(sacctmgr) is allowed to change the accounting, as root on a controller.
  - Names of accounts and qualities of service are in lower case in Slurm, whatever is written here.
requirements:
  - C(sacctmgr), with slurmdbd running
"""
    ASSOCIATION = r"""
options:
  fairshare:
    description: Shares of the account's, or the cluster's, resources; V(parent) for those of the account above.
    type: str
  max_gpus:
    description: GPUs at a time; V(-1) for no limit.
    type: int
  max_jobs:
    description: Jobs at a time; V(-1) for no limit.
    type: int
  qos:
    description: Qualities of service that may be used. The list is exact.
    type: list
    elements: str
  default_qos:
    description: The one of them that jobs get which name none.
    type: str
"""
