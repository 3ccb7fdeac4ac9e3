#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_clashes
short_description: Find what outside of a Python environment gets into its programs
description:
  - Names variables such as C(LD_LIBRARY_PATH) that login shells get and the file that sets them, copies of NCCL that
    the loader knows, a conda that is active in login shells, and users' own packages of the same names.
  - Reads only. It starts one login shell of root.
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Look for what gets into environments
  gpuops.cluster.python_clashes:
  register: found
"""

RETURN = r"""
clashes:
  description: One line for each finding, naming the file and what it does.
  returned: always
  type: list
  elements: str
  sample: ["/etc/profile.d/cuda.sh sets LD_LIBRARY_PATH=/usr/local/cuda/lib64"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _python_clashes


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, clashes=_python_clashes.clashes("/", module.run_command))


if __name__ == "__main__":
    main()
