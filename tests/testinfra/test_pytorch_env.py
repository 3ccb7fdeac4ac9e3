"""Environments of the lab's nodes: what was locked is what runs, and building another never harms the one in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = "/opt/gpuops/envs"
Module = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def lock(connect: Callable[[str], Any]) -> dict[str, str]:
    """The wheelhouse's lock: line by project."""
    text = connect("n1").file("/srv/gpuops-lab/wheels/requirements.txt").content_string
    return {line.split("==")[0]: line for line in text.splitlines()}


def test_the_locked_torch_runs_on_every_node(connect: Callable[[str], Any], lock: dict[str, str]) -> None:
    wanted = lock["torch"].split("==")[1].split()[0]
    stamps = set()
    for name in ("n1", "n2"):
        host = connect(name)
        said = host.check_output(f"{ROOT}/torch/bin/python -c 'import torch; print(torch.__version__)'")
        assert said.split("+")[0] == wanted.split("+")[0]
        stamps.add(json.loads(host.file(f"{ROOT}/torch/.gpuops.json").content_string)["lock_sha256"])
    assert len(stamps) == 1


def test_a_login_shell_finds_torchrun_and_keeps_the_system_s_python(n1: Any) -> None:
    assert n1.check_output("bash -lc 'command -v torchrun'") == f"{ROOT}/torch/bin/torchrun"
    assert n1.check_output("bash -lc 'command -v python3'") == "/usr/bin/python3"


def test_a_sum_over_four_ranks_is_right(n1: Any) -> None:
    said = n1.check_output(
        f"{ROOT}/torch/bin/torchrun --standalone --nproc-per-node=4 /opt/gpuops/checks/allreduce_check.py"
    )
    result = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert result["ranks"] == 4
    assert result["sum_is_right"] is True
    assert result["backend"] == "gloo"


@pytest.fixture(scope="module")
def build(module: Module) -> Module:
    def run(lines: list[str], **more: Any) -> dict[str, Any]:
        places = {"root": "/opt/test-envs", "find_links": ["/srv/gpuops-lab/wheels"], "no_index": True}
        name = "gpuops.cluster.python_environment"
        return module("n1", name, name="small", lock="\n".join(lines) + "\n", **places, **more)

    return run


def test_upgrade_builds_beside_and_going_back_builds_nothing(n1: Any, build: Module, lock: dict[str, str]) -> None:
    old, new = [lock["filelock"]], [lock["filelock"], lock["fsspec"]]
    planned = build(old, check=True)
    assert planned["changed"] is True
    assert not n1.file("/opt/test-envs").exists

    first = build(old)
    assert first["changed"] is True
    assert build(old)["changed"] is False

    second = build(new)
    assert second["path"] != first["path"]
    assert n1.file("/opt/test-envs/small").linked_to == second["path"]
    n1.check_output(f"{first['path']}/bin/python -c 'import filelock'")
    n1.check_output("/opt/test-envs/small/bin/python -c 'import fsspec'")

    inode = n1.check_output(f"stat -c %i {first['path']}/bin/python")
    back = build(old)
    assert back["changed"] is True
    assert n1.file("/opt/test-envs/small").linked_to == first["path"]
    assert n1.check_output(f"stat -c %i {first['path']}/bin/python") == inode


def test_a_wrong_hash_leaves_everything_as_it_was(n1: Any, build: Module, lock: dict[str, str]) -> None:
    build([lock["filelock"]])
    before = n1.check_output("ls -la /opt/test-envs")
    name, digest = lock["fsspec"].split(" --hash=sha256:")
    wrong = build([f"{name} --hash=sha256:{digest[::-1]}"])
    assert wrong["failed"] is True
    assert "fsspec" in wrong["msg"]
    assert "HASHES" in wrong["msg"] or "hash" in wrong["msg"]
    assert n1.check_output("ls -la /opt/test-envs | grep -v ' \\.$'") == "\n".join(
        line for line in before.splitlines() if not line.endswith(" .")
    )


def test_a_half_built_environment_is_built_again(n1: Any, build: Module, lock: dict[str, str]) -> None:
    path = build([lock["filelock"]])["path"]
    n1.check_output(f"rm {path}/.gpuops.json")
    assert build([lock["filelock"]])["changed"] is True
    n1.check_output("/opt/test-envs/small/bin/python -c 'import filelock'")


def test_old_ones_are_pruned_by_count_and_a_lock_without_hash_is_refused(
    n1: Any, build: Module, lock: dict[str, str]
) -> None:
    build([lock["filelock"]])
    pruned = build([lock["sympy"], lock["mpmath"]], keep=0)
    assert pruned["removed"]
    left = n1.check_output("ls /opt/test-envs").split()
    assert sorted(left) == ["small", Path(pruned["path"]).name]
    refused = build(["filelock==1.0"])
    assert refused["failed"] is True
    assert "has no --hash" in refused["msg"]
