"""Roles by their full name in a playbook elsewhere, without settings of this checkout; and what ansible-doc shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from ansible_collections.gpuops.cluster.tests.unit.support.documented import PROJECT, ROLES, options


def tool(name: str, *words: str, cwd: Path) -> str:
    """What a tool of Ansible's says that knows nothing but where collections are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "GPUOPS_"))}
    environment = {**kept, "ANSIBLE_COLLECTIONS_PATH": str(PROJECT / ".ansible/collections"), "HOME": str(cwd)}
    command = [str(Path(sys.executable).with_name(name)), *words]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_role_is_found_by_its_full_name(tmp_path: Path) -> None:
    play = {"hosts": "localhost", "gather_facts": False, "roles": [f"gpuops.cluster.{role}" for role in ROLES]}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    listed = tool("ansible-playbook", "mine.yml", "--list-tasks", cwd=tmp_path)
    assert [role for role in ROLES if f"gpuops.cluster.{role} : " not in listed] == []


def test_ansible_doc_shows_the_variables_of_every_role(tmp_path: Path) -> None:
    names = [f"gpuops.cluster.{role}" for role in ROLES]
    shown = json.loads(tool("ansible-doc", "--type", "role", "--json", *names, cwd=tmp_path))
    found = {name: set(shown[name]["entry_points"]["main"].get("options", {})) for name in names}
    assert found == {f"gpuops.cluster.{role}": set(options(role)) for role in ROLES}
