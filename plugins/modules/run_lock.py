#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: run_lock
short_description: Let one run of a playbook at a time work on a host
description:
  - Keeps a record on the host of who works on it, from which control node and since when. A reboot removes it.
  - Another run that counts is no error of the task but told in RV(refusal), so that a play can hear all hosts first.
  - A run of the same control node whose process has ended is replaced without a word, as is one whose hours are over.
  - Never reports a change, since the record is no part of the state that a playbook brings a host to.
version_added: 0.2.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Says who works on the host, and leaves its record as it is.
    support: full
  diff_mode:
    description: Shows nothing.
    support: none
  action:
    description: Runs on the control node, which knows its own processes, and on the host.
    support: full
options:
  state:
    description:
      - V(present) takes the host for this run. Repeated by the same run, its hours begin anew.
      - V(absent) gives it back, where this run has it.
    type: str
    choices: [present, absent]
    default: present
  force:
    description: Whether the record of another run is replaced, or with O(state=absent) removed.
    type: bool
    default: false
  hours:
    description:
      - For how long the record counts for other control nodes, which cannot see whether this run has ended.
      - Keeps the host from others for longer than a run lasts when it is too large, and for too short a time otherwise.
    type: float
    default: 4
  path:
    description: The record. A file beside it, C(.lock) instead of its extension, makes taking it atomic and stays.
    type: path
    default: /run/gpuops-run.json
  run:
    description: Who runs it. Filled in on the control node.
    type: dict
    default: {}
  gone:
    description: Which run the control node knows to have ended. Filled in on the control node.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Take the hosts
  gpuops.cluster.run_lock:
  register: lock

- name: Stop if somebody else is at work on one of them
  ansible.builtin.assert:
    that: lock.refusal == ''
    fail_msg: "{{ inventory_hostname }}: {{ lock.refusal }}"

- name: Give them back
  gpuops.cluster.run_lock:
    state: absent
"""

RETURN = r"""
refusal:
  description:
    - Who else works on the host, or why it could not be taken. Empty when this run has it.
    - Also empty for a host that could not be connected to, which is reported and not unreachable.
  returned: always
  type: str
  sample: >-
    alice on admin1 runs site.yml since 10:31 (process 1234);
    wait until it has ended, or if it is gone set site_lock_force: true
answers:
  description: Whether the host could be connected to.
  returned: always
  type: bool
  sample: true
holder:
  description: The record of the other run, null when there is none.
  returned: success
  type: dict
  sample:
    user: alice
    control: admin1
    machine: 0f5b37a9c2d1e846
    boot: 8b0c3c2e-6c1c-4d0e-9a3b-1f6f0c8f6a52
    pid: 1234
    start: "178122"
    begin: 1764498660.5
    playbook: site.yml
    hours: 4.0
    taken: 3600.25
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _run_lock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "force": {"type": "bool", "default": False},
            "hours": {"type": "float", "default": 4},
            "path": {"type": "path", "default": "/run/gpuops-run.json"},
            "run": {"type": "dict", "default": {}},
            "gone": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    options = module.params
    path, write = options["path"], not module.check_mode
    run = _run_lock.parse({**options["run"], "hours": options["hours"], "taken": 0})
    if run is None:
        module.fail_json(msg=f"run is {options['run']}, expected {', '.join(_run_lock.FIELDS)}")
        return
    holder = None
    try:
        if options["state"] == "absent":
            _run_lock.release(path, run, force=options["force"], write=write)
        else:
            holder = _run_lock.take(path, run, force=options["force"], gone=options["gone"], write=write)
    except OSError as error:
        module.fail_json(msg=f"{path}, the record of who works on this host, cannot be written: {error.strerror}")
    module.exit_json(changed=False, holder=holder)


if __name__ == "__main__":
    main()
