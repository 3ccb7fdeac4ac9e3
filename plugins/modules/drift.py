#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drift
short_description: Say in what a host differs from what a role wants
version_added: 0.3.0
description:
  - Looks at packages, files and units of systemd in one task, so that a role includes the tasks that change something
    only where something differs.
  - Files are compared by their SHA-256, which is computed on the control node. Their contents do not travel.
  - What cannot be seen differs.
options:
  packages:
    description: Packages that dpkg should have installed.
    type: list
    elements: str
    default: []
  files:
    description: Files and directories that should be there. One of O(files[].content), O(files[].src),
      O(files[].program), O(files[].sha256) and O(files[].line) says what a file holds.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      state:
        description: What it is.
        type: str
        choices: [file, directory]
        default: file
      content:
        description: The whole text.
        type: str
      src:
        description: A file with the same contents, looked up in the role's C(files) on the control node.
        type: str
      program:
        description: A program as M(gpuops.cluster.node_program) installs it, looked up as O(files[].src) is.
        type: str
      sha256:
        description: The hexadecimal digest of what it holds. For secrets, which Ansible may show otherwise.
        type: str
      line:
        description: A line with a V(=), the last of those in the file that begin with the same text up to the V(=).
        type: str
      mode:
        description: Mode as a string. C(0644) for files and C(0755) for directories where it is not given.
        type: str
      owner:
        description: Who owns it. Root where it is not given, anybody where O(files[].line) is.
        type: str
      group:
        description: Its group. Root where it is not given, any where O(files[].line) is.
        type: str
  units:
    description: Units that should be enabled and active. Those whose file is in O(files), below C(/etc/systemd/system),
      should also be loaded as they are.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpuops.cluster.look
attributes:
  action:
    description: Computes the digests on the control node.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: See what differs
  gpuops.cluster.drift:
    packages: [chrony]
    files:
      - {path: /etc/chrony/conf.d/site.conf, content: "{{ lookup('ansible.builtin.template', 'site.conf.j2') }}"}
      - {path: /etc/default/chrony, line: 'DAEMON_OPTS="-F 1"'}
    units: [chrony.service]
  register: site_seen

- name: Change it
  ansible.builtin.include_tasks: change.yml
  when: site_seen.differs
"""

RETURN = r"""
differs:
  description: Whether anything does.
  returned: success
  type: bool
packages:
  description: Those that are not installed.
  returned: success
  type: list
  elements: str
paths:
  description: Files and directories that are not there, or differ in contents, owner, group or mode.
  returned: success
  type: list
  elements: str
units:
  description: Those that are not enabled, not active or not loaded as their file is.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _drift

FILE: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["file", "directory"], "default": "file"},
    "content": {"type": "str"},
    "src": {"type": "str"},
    "program": {"type": "str"},
    "sha256": {"type": "str"},
    "line": {"type": "str"},
    "mode": {"type": "str"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
            "units": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str, str]:
        try:
            answer: tuple[int, str, str] = module.run_command(
                argv, environ_update={"LC_ALL": "C"}, handle_exceptions=False
            )
        except OSError as error:  # no such program
            return 127, "", str(error)
        return answer

    module.exit_json(changed=False, **_drift.look(run, module.params))


if __name__ == "__main__":
    main()
