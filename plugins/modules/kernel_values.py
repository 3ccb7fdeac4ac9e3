#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_values
short_description: Set kernel parameters and values in sysfs now, and read them back
version_added: 0.2.0
description:
  - Writes only what differs, and reads it back.
  - What the kernel refuses is returned in RV(left_out) with its own words, and fails nothing.
  - Changes the running system only. O(sysctl_file) is what makes the parameters last; it is not written here.
options:
  sysctl:
    description: Kernel parameters. The first separator decides between dots and slashes, as with C(sysctl).
    type: dict
    default: {}
  sysctl_file:
    description:
      - The file that sets them at boot.
      - Files that are read after it and say otherwise are returned in RV(overridden).
    type: path
    required: true
  sysfs:
    description: Values in sysfs. Each element has a C(name), a shell pattern of C(files), and the C(value).
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    description: Says what would change, and what the kernel would not let be written.
    support: full
  diff_mode:
    description: RV(changes) has the values before and after.
    support: none
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Keep data in memory
  gpuops.cluster.kernel_values:
    sysctl: {vm.swappiness: 10}
    sysctl_file: /etc/sysctl.d/90-site.conf

- name: Let programs ask for transparent huge pages
  gpuops.cluster.kernel_values:
    sysctl_file: /etc/sysctl.d/90-site.conf
    sysfs:
      - name: transparent huge pages
        files: /sys/kernel/mm/transparent_hugepage/enabled
        value: madvise
"""

RETURN = r"""
changes:
  description: What was changed.
  returned: always
  type: list
  elements: str
  sample: ["vm.swappiness: 60 -> 10"]
left_out:
  description: What the kernel refused, does not have, or tuned owns.
  returned: always
  type: list
  elements: str
overridden:
  description: Parameters that another file sets to another value later at boot.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._kernel_values import converge


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sysctl": {"type": "dict", "default": {}},
            "sysctl_file": {"type": "path", "required": True},
            "sysfs": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    result = converge(module.params, module.check_mode)
    module.exit_json(changed=bool(result["changes"]), **result)


if __name__ == "__main__":
    main()
