#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environments
short_description: Whether the Python environments of a host are those of their lock files
version_added: 0.3.0
description:
  - Says of all environments of a host what M(gpuops.cluster.python_environment) would do for one, and whether the host
    can make virtual environments at all. One task where nothing is to be done.
  - Fails where its caller has found O(problems).
options:
  environments:
    description: What is to be there.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the environment.
        type: str
        required: true
      lock:
        description: Text of the lock file; empty while it is not known, and the environment then counts as missing.
        type: str
        default: ""
      python:
        description: Interpreter that the environment is made with.
        type: path
        default: /usr/bin/python3
  root:
    description: Directory that holds the environments.
    type: path
    required: true
  keep:
    description: How many superseded environments of each name are kept.
    type: int
    default: 2
  shared:
    description: >-
      The root is on a file system that several hosts see: an environment counts as there only where it is in use and
      runs with this host's Python.
    type: bool
    default: false
  problems:
    description: Why to refuse. Nothing is looked at then.
    type: list
    elements: str
    default: []
  subject:
    description: What a refusal begins with, such as the host's name.
    type: str
    default: environments
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: See whether an environment is to be built
  gpuops.cluster.python_environments:
    root: /opt/gpuops/envs
    environments:
      - {name: torch, lock: "{{ lookup('ansible.builtin.file', 'torch.lock') }}"}
  register: found
"""

RETURN = r"""
needed:
  description: Whether anything is to be done on this host.
  returned: success
  type: bool
venv:
  description: Whether the package python3-venv is installed.
  returned: success
  type: bool
environments:
  description: >-
    For each environment its C(name), its C(path) (empty where there is no lock), the version C(python) of the
    interpreter (empty where it does not run), whether it is C(complete), and C(needed), whether something is to be
    done.
  returned: success
  type: list
  elements: dict
  sample: [{name: torch, path: /opt/gpuops/envs/torch-0f3a9c2be117, python: 3.11.2, complete: true, needed: false}]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._python_environment import (
    ASK_VERSION,
    Environment,
    EnvironmentFailed,
    Run,
    runs_here,
)


def asked(run: Run, command: list[str]) -> str:
    """What a command prints; empty where it fails or is not there."""
    try:
        code, out, _err = run(command, handle_exceptions=False)
    except OSError:
        return ""
    return out.strip() if code == 0 else ""


def whole(environment: Environment, run: Run, shared: bool) -> bool:
    """Whether the environment is there; a shared one as this host sees it, in use and with its own Python."""
    if not environment.is_complete():
        return False
    if shared:
        try:
            runs_here(environment.target, run)
        except EnvironmentFailed:
            return False
    return environment.is_current() or not shared


def look(wanted: dict[str, Any], root: Path, keep: int, shared: bool, run: Run) -> dict[str, Any]:
    python = asked(run, [wanted["python"], "-c", ASK_VERSION])
    found = {"name": wanted["name"], "path": "", "python": python, "complete": False, "needed": True}
    if wanted["lock"]:
        environment = Environment(root, wanted["name"], wanted["lock"], keep)
        there = whole(environment, run, shared)
        in_order = there and environment.is_current() and not environment.superseded()
        # Where the interpreter does not run, the module that would build says so.
        found.update(path=str(environment.target), complete=there, needed=not (in_order and python))
    return found


def main() -> None:
    suboptions = {
        "name": {"type": "str", "required": True},
        "lock": {"type": "str", "default": ""},
        "python": {"type": "path", "default": "/usr/bin/python3"},
    }
    module = AnsibleModule(
        argument_spec={
            "environments": {"type": "list", "elements": "dict", "required": True, "options": suboptions},
            "root": {"type": "path", "required": True},
            "keep": {"type": "int", "default": 2},
            "shared": {"type": "bool", "default": False},
            "problems": {"type": "list", "elements": "str", "default": []},
            "subject": {"type": "str", "default": "environments"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["problems"]:
        module.fail_json(msg=f"{given['subject']}: {'; '.join(given['problems'])}")
    status = asked(module.run_command, ["dpkg-query", "--show", "--showformat=${db:Status-Status}", "python3-venv"])
    venv = status == "installed"
    found = [
        look(wanted, Path(given["root"]), given["keep"], given["shared"], module.run_command)
        for wanted in given["environments"]
    ]
    needed = not venv or any(one["needed"] for one in found)
    module.exit_json(changed=False, needed=needed, venv=venv, environments=found)


if __name__ == "__main__":
    main()
