"""Programs for nodes: complete, reproducible, and run by a Python that has no Ansible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_program

FOLDER = Path(_node_program.__file__).parent
PROGRAM = f"""
from {_node_program.PACKAGE} import _python_lock
from {_node_program.PACKAGE}._gpu_facts import gather
import json, sys
print(json.dumps([gather(None, sys.argv[1], sys.argv[1])["state"], sorted(_python_lock.requirements("a==1"))]))
"""


def test_what_is_imported_comes_along_transitively() -> None:
    names = _node_program.library(PROGRAM, FOLDER)
    assert {"_python_lock", "_gpu_facts", "_gpu_health", "_pci"} <= names.keys()
    assert "_host_probe" not in names


def test_the_same_sources_give_the_same_bytes() -> None:
    assert _node_program.archive(PROGRAM, FOLDER) == _node_program.archive(PROGRAM, FOLDER)


def test_it_runs_without_ansible_and_without_this_checkout(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(_node_program.archive(PROGRAM, FOLDER))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == '["no_gpu", ["a"]]'


def test_an_import_that_does_not_exist_is_an_error_here_not_on_the_node() -> None:
    with pytest.raises(FileNotFoundError):
        _node_program.archive(f"from {_node_program.PACKAGE} import _no_such_module\n", FOLDER)
