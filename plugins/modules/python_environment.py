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
  - Environments work at whatever path they lie; only C(activate) of shells other than bash keeps the path.
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
  installer:
    description: >-
      What installs the packages. V(uv) has to be in the lock; it is quicker, and reads its own configuration rather
      than pip's.
    type: str
    choices: [pip, uv]
    default: pip
  archive:
    description:
      - An archive of this environment (C(tar) of C(ROOT/NAME-HASH)), unpacked where the file is there, rather than
        building anew.
      - The host needs the same minor version of Python at the same path as the one that built it.
    type: path
  shared:
    description: >-
      The root is on a file system that another host writes: look whether the environment is there and runs with this
      host's Python, and change nothing.
    type: bool
    default: false
  index_url:
    description: Package index; the installer's own configuration decides where it is empty.
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
    description: >-
      How many superseded environments of this name are kept. One that a process of the host uses is kept besides.
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
  returned: unless O(shared)
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
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _python_lock
from ansible_collections.gpuops.cluster.plugins.module_utils._python_environment import (
    ASK_VERSION,
    Environment,
    EnvironmentFailed,
    Source,
    runs_here,
)


def interpreter(module: AnsibleModule) -> str:
    """Version of the interpreter, or failure: a build with another one ends in a message about wheels, far later."""
    python, wanted = module.params["python"], module.params["python_version"]
    try:
        code, out, err = module.run_command([python, "-c", ASK_VERSION], handle_exceptions=False)
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


def look(module: AnsibleModule, environment: Environment) -> None:
    """A shared environment as this host sees it; fails where it is not that of the lock or does not run."""
    name = f"environment {environment.name}"
    complete = environment.is_complete() and environment.is_current()
    if not complete and not module.check_mode:
        module.fail_json(
            msg=f"{name}: {environment.root} has no {environment.target.name} that {environment.name} points at: "
            "is it the file system that the building host writes?"
        )
    if complete:
        try:
            runs_here(environment.target, module.run_command)
        except EnvironmentFailed as error:
            module.fail_json(msg=f"{name}: {error}")
    module.exit_json(changed=False, complete=complete, **described(environment), removed=[])


def described(environment: Environment) -> dict[str, Any]:
    return {
        "path": str(environment.target),
        "link": str(environment.link),
        "lock_sha256": environment.digest,
    }


def make(module: AnsibleModule, environment: Environment) -> None:
    """Build the environment, or unpack it where there is an archive of it."""
    archive = module.params["archive"]
    if archive and Path(archive).exists():
        environment.unpack(archive, module.run_command)
        return
    names = ("installer", "index_url", "find_links", "no_index")
    source = Source(**{name: module.params[name] for name in names})
    environment.build(module.params["python"], source, module.run_command)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "python_version": {"type": "str", "default": ""},
            "installer": {"type": "str", "choices": ["pip", "uv"], "default": "pip"},
            "archive": {"type": "path"},
            "shared": {"type": "bool", "default": False},
            "index_url": {"type": "str", "default": ""},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "no_index": {"type": "bool", "default": False},
            "keep": {"type": "int", "default": 2},
        },
        supports_check_mode=True,
    )
    wrong = _python_lock.problems(module.params["lock"])
    if module.params["installer"] == "uv" and "uv" not in _python_lock.requirements(module.params["lock"]):
        wrong.append("holds no uv, which is to install it")
    if wrong:
        module.fail_json(msg=f"the lock of {module.params['name']} {'; '.join(wrong)}")

    environment = Environment(
        Path(module.params["root"]), module.params["name"], module.params["lock"], module.params["keep"]
    )
    version = interpreter(module)
    if module.params["shared"]:
        look(module, environment)
    build, switch = not environment.is_complete(), not environment.is_current()
    previous = environment.previous()
    result = {
        **described(environment),
        "changed": build or switch or bool(environment.superseded()),
        "python_version": version,
        "complete": not build,
        "removed": [str(path) for path in environment.superseded()],
        "diff": {"before": f"{previous or 'none'}\n", "after": f"{environment.target.name}\n"},
    }
    if not module.check_mode:
        try:
            if build:
                make(module, environment)
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
