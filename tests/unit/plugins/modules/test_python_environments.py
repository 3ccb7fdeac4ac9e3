# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has of its environments, and when something is to be done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._python_environment import STAMP, Environment
from ansible_collections.gpuops.cluster.plugins.modules import python_environments

LOCK = f"filelock==3.20.0 --hash=sha256:{'0' * 64}\n"


def run(command: list[str], **_given: Any) -> tuple[int, str, str]:
    """Interpreters that are called `missing` are not there, `broken` does not run, others are Python 3.11.2."""
    if "missing" in command[0]:
        raise FileNotFoundError(command[0])
    return (1, "", "broken") if "broken" in command[0] else (0, "3.11.2\n", "")


def made(root: Path, lock: str = LOCK, python: str = "3.11.1") -> Environment:
    """An environment as the module that builds leaves it."""
    environment = Environment(root, "torch", lock, 0)
    (environment.target / "bin").mkdir(parents=True)
    (environment.target / "bin/python").symlink_to("/usr/bin/python3")
    stamp = {"lock_sha256": environment.digest, "python": python}
    (environment.target / STAMP).write_text(json.dumps(stamp))
    environment.switch()
    return environment


def look(root: Path, shared: bool = False, keep: int = 0, **given: str) -> dict[str, Any]:
    wanted = {"name": "torch", "lock": LOCK, "python": "/usr/bin/python3", **given}
    return python_environments.look(wanted, root, keep, shared, run)


def state(found: dict[str, Any]) -> tuple[bool, bool]:
    return found["complete"], found["needed"]


def test_nothing_is_to_be_done_where_the_environment_is_that_of_the_lock(tmp_path: Path) -> None:
    path = made(tmp_path).target
    assert look(tmp_path) == {
        "name": "torch",
        "path": str(path),
        "python": "3.11.2",
        "complete": True,
        "needed": False,
    }


def test_it_is_missing_half_built_or_not_in_use(tmp_path: Path) -> None:
    assert state(look(tmp_path)) == (False, True)
    environment = made(tmp_path)
    environment.link.unlink()
    os.symlink("torch-000000000000", environment.link)
    assert state(look(tmp_path)) == (True, True)
    environment.switch()
    (environment.target / STAMP).unlink()
    assert state(look(tmp_path)) == (False, True)


def test_superseded_ones_are_to_be_removed(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "torch-000000000000").mkdir()
    assert state(look(tmp_path, keep=1)) == (True, False)
    assert state(look(tmp_path, keep=0)) == (True, True)


@pytest.mark.parametrize("python", ["/missing", "/broken"])
def test_an_interpreter_that_does_not_run_is_left_to_the_module_that_builds(tmp_path: Path, python: str) -> None:
    made(tmp_path)
    found = look(tmp_path, python=python)
    assert (found["python"], *state(found)) == ("", True, True)


def test_without_a_lock_the_environment_counts_as_missing(tmp_path: Path) -> None:
    found = look(tmp_path, lock="")
    assert (found["path"], *state(found)) == ("", False, True)


def test_a_shared_one_counts_where_it_is_in_use_and_runs_here(tmp_path: Path) -> None:
    environment = made(tmp_path)
    assert state(look(tmp_path, shared=True)) == (True, False)
    environment.link.unlink()
    assert state(look(tmp_path, shared=True)) == (False, True)
    environment.switch()
    stamp = {"lock_sha256": environment.digest, "python": "3.12.1"}
    (environment.target / STAMP).write_text(json.dumps(stamp))
    assert state(look(tmp_path, shared=True)) == (False, True)
