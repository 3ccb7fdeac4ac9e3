#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Python virtual environment from a lock file, built beside the old one and switched by a link
description:
  - Builds C(ROOT/NAME-HASH) from a lock file with hashes, then points the link C(ROOT/NAME) at it.
  - The same lock changes nothing. Another lock builds beside the environment in use; running jobs keep theirs.
  - A failed build leaves the environment in use as it was and removes what was begun.
options:
  name:
    description: Name of the environment.
    type: str
    required: true
  root:
    description: Directory that holds the environments.
    type: path
    required: true
  lock:
    description: Text of the lock file, requirements with exact versions and hashes.
    type: str
    required: true
  python:
    description: Interpreter that the environment is made with.
    type: path
    default: /usr/bin/python3
  python_version:
    description: Version that the interpreter must have, such as V(3.11); any where it is empty.
    type: str
    default: ""
  index_url:
    description: Package index; pip's own configuration decides where it is empty.
    type: str
    default: ""
  find_links:
    description: Directories or URLs with wheels, as the host sees them.
    type: list
    elements: str
    default: []
  no_index:
    description: Install from O(find_links) alone.
    type: bool
    default: false
  keep:
    description: How many superseded environments of this name are kept.
    type: int
    default: 2
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Shows the lock's hash before and after.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: PyTorch from a wheelhouse, without internet
  gpuops.cluster.python_environment:
    name: torch
    root: /opt/gpuops/envs
    lock: "{{ lookup('ansible.builtin.file', 'torch.lock') }}"
    find_links: [/srv/wheels]
    no_index: true
"""

RETURN = r"""
path:
  description: The environment of this lock.
  returned: always
  type: str
  sample: /opt/gpuops/envs/torch-0f3a9c2be117
link:
  description: The stable path that points at the environment in use.
  returned: always
  type: str
  sample: /opt/gpuops/envs/torch
lock_sha256:
  description: SHA-256 of the lock's requirements; equal on every host with the same environment.
  returned: always
  type: str
  sample: 0f3a9c2be117
python_version:
  description: Version of the interpreter; empty in check mode where there is none yet.
  returned: always
  type: str
  sample: 3.11.2
complete:
  description: Whether the environment of this lock is there now; false in check mode on a host that must yet build it.
  returned: always
  type: bool
  sample: true
removed:
  description: Superseded environments that were removed.
  returned: always
  type: list
  elements: str
  sample: []
"""

import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _python_lock
from ansible_collections.gpuops.cluster.plugins.module_utils._python_environment import Environment, EnvironmentFailed


def pip_options(module: AnsibleModule) -> list[str]:
    options = [f"--find-links={place}" for place in module.params["find_links"]]
    if module.params["no_index"]:
        return ["--no-index", *options]
    if module.params["index_url"]:
        options.append(f"--index-url={module.params['index_url']}")
    return options


def interpreter(module: AnsibleModule) -> str:
    """Version of the interpreter, or failure: a build with another one ends in a message about wheels, far later."""
    python, wanted = module.params["python"], module.params["python_version"]
    try:
        command = [python, "-c", "import platform; print(platform.python_version())"]
        code, out, err = module.run_command(command, handle_exceptions=False)
    except OSError as error:
        code, out, err = 1, "", str(error)
    name = f"environment {module.params['name']}"
    if code != 0:
        if module.check_mode:
            return ""
        module.fail_json(msg=f"{name}: {python} (python) does not run: {err.strip()}")
    version = str(out.strip())
    if wanted and version != wanted and not version.startswith(f"{wanted}."):
        module.fail_json(msg=f"{name}: {python} (python) is Python {version}, python_version wants {wanted}")
    return version


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "python_version": {"type": "str", "default": ""},
            "index_url": {"type": "str", "default": ""},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "no_index": {"type": "bool", "default": False},
            "keep": {"type": "int", "default": 2},
        },
        supports_check_mode=True,
    )
    wrong = _python_lock.problems(module.params["lock"])
    if wrong:
        module.fail_json(msg=f"the lock of {module.params['name']} {'; '.join(wrong)}")

    environment = Environment(
        Path(module.params["root"]), module.params["name"], module.params["lock"], module.params["keep"]
    )
    version = interpreter(module)
    build, switch = not environment.is_complete(), not environment.is_current()
    previous = environment.previous()
    result = {
        "changed": build or switch or bool(environment.superseded()),
        "path": str(environment.target),
        "link": str(environment.link),
        "lock_sha256": environment.digest,
        "python_version": version,
        "complete": not build,
        "removed": [str(path) for path in environment.superseded()],
        "diff": {"before": f"{previous or 'none'}\n", "after": f"{environment.target.name}\n"},
    }
    if not module.check_mode:
        try:
            if build:
                environment.build(module.params["python"], pip_options(module), module.run_command)
                result["complete"] = True
        except (EnvironmentFailed, OSError) as error:
            module.fail_json(msg=f"environment {module.params['name']}: {error}", **result)
        if switch:
            environment.switch()
        # Only after the switch is it certain that no new job starts in them.
        for path in environment.superseded():
            shutil.rmtree(path)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
