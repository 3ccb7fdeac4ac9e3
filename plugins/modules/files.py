#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Write several small text files and their directories in one task
version_added: 0.3.0
description:
  - Does for a list of files what M(ansible.builtin.copy) with its C(content) and M(ansible.builtin.file) do for one.
    In a loop of those every file costs two or three round trips, and the control node as much work as that many tasks.
  - Files are taken in the order given. Each is replaced as a whole or not at all; no daemon reads half of one.
  - Not for secrets, which O(files) shows to who runs Ansible with C(-vvv), nor for large files.
options:
  files:
    description: What is to be there.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path. Its directory has to be there, or to come before it in the list.
        type: path
        required: true
      state:
        description:
          - V(file) has O(files[].content), V(directory) is made with those above it, V(absent) is removed.
          - V(absent) does not remove a directory that holds something.
        type: str
        choices: [file, directory, absent]
        default: file
      content:
        description: The whole text of a file, for example from a C(template) or C(file) lookup.
        type: str
        default: ""
      mode:
        description: Mode as a string. C(0644) for files and C(0755) for directories where it is not given.
        type: str
  owner:
    description: Who owns all of them.
    type: str
    default: root
  group:
    description: The group of all of them.
    type: str
    default: root
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: One difference for each file.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Offer two commands to all users
  gpuops.cluster.files:
    files:
      - {path: /opt/site/bin, state: directory}
      - {path: /opt/site/bin/queue, mode: "0755", content: "#!/bin/sh\nexec squeue --me\n"}
      - {path: /etc/profile.d/site.sh, content: "{{ lookup('ansible.builtin.template', 'site.sh.j2') }}"}
"""

RETURN = r"""
changed_paths:
  description: What was changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/profile.d/site.sh]
"""

import os
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

MODES = {"file": "0644", "directory": "0755"}


def text(path: str) -> str | None:
    """What a file holds; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as handle:
            return handle.read()
    except FileNotFoundError:
        return None


def write(module: AnsibleModule, path: str, content: str) -> None:
    # In the same directory, so that it can be renamed to its place; private until then.
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".ansible_files_")
    module.add_cleanup_file(temporary)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as handle:
        handle.write(content)
    module.atomic_move(temporary, path)


def remove(module: AnsibleModule, path: str) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        return None
    if not module.check_mode:
        (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
    return {"before_header": path, "after_header": path, "before": {"state": "present"}, "after": {"state": "absent"}}


def own(module: AnsibleModule, path: str, mode: str, diff: dict[str, Any]) -> bool:
    """Owner, group and mode of what is there. True when one of them was not as wanted."""
    owned = {"owner": module.params["owner"], "group": module.params["group"], "attributes": None, "mode": mode}
    asked = module.load_file_common_arguments(owned, path=path)
    return bool(module.set_fs_attributes_if_different(asked, False, diff))


def make(module: AnsibleModule, path: str, mode: str) -> None:
    """A directory and those above it that are missing, all with this mode: root's umask may keep others out."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        make(module, above, mode)
    os.mkdir(path)
    own(module, path, mode, {})


def bring(module: AnsibleModule, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """One file or directory as it is wanted. Returns the difference; None where nothing differed."""
    path, state = wanted["path"], wanted["state"]
    if state == "absent":
        return remove(module, path)
    diff: dict[str, Any] = {"before_header": path, "after_header": path, "before": "", "after": ""}
    changed, mode = False, wanted["mode"] or MODES[state]
    if state == "directory":
        changed = not os.path.isdir(path)
        if changed and not module.check_mode:
            make(module, path, mode)
    else:
        diff["before"], diff["after"] = text(path) or "", wanted["content"]
        changed = text(path) != wanted["content"]
        if changed and not module.check_mode:
            write(module, path, wanted["content"])
    if os.path.exists(path):
        rights: dict[str, Any] = {}
        if own(module, path, mode, rights):
            changed = True
            if diff["before"] == diff["after"]:
                diff.update(before=rights.get("before", {}), after=rights.get("after", {}))
    return diff if changed else None


def main() -> None:
    suboptions = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["file", "directory", "absent"], "default": "file"},
        "content": {"type": "str", "default": ""},
        "mode": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "required": True, "options": suboptions},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
        },
        supports_check_mode=True,
    )
    diffs: list[dict[str, Any]] = []
    paths: list[str] = []
    for wanted in module.params["files"]:
        try:
            diff = bring(module, wanted)
        except OSError as error:
            done = f"; before it was changed: {', '.join(paths)}" if paths and not module.check_mode else ""
            module.fail_json(msg=f"{wanted['path']}: {error.strerror}{done}", changed_paths=paths, changed=bool(paths))
        if diff:
            diffs.append(diff)
            paths.append(wanted["path"])
    module.exit_json(changed=bool(paths), changed_paths=paths, diff=diffs)


if __name__ == "__main__":
    main()
