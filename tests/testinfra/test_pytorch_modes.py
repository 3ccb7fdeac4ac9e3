"""Environments on nodes that have no network but the lab's own: built once, by uv, and distributed in every way; an
upgrade and a way back while the examples train."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = "/opt/gpuops/envs"
SHARED = "/srv/shared/envs"
PROJECT = Path(__file__).resolve().parents[2]


def role(limit: str = "all", **given: Any) -> str:
    """Run the scenario's play with other variables; what it said."""
    command = ["ansible-playbook", "-i", "inventories/lab", "molecule/pytorch_modes/converge.yml"]
    command += ["-e", json.dumps(given), "--limit", limit]
    environment = {**os.environ, "ANSIBLE_CALLBACKS_ENABLED": "gpuops.cluster.summary", "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    said = done.stdout + done.stderr
    return said if done.returncode == 0 else f"FAILED {said}"


def changed(said: str) -> dict[str, int]:
    return {host: int(count) for host, count in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", said, re.MULTILINE)}


def wait(host: Any, condition: str, seconds: int = 300) -> None:
    host.check_output(f"timeout {seconds} sh -c 'until {condition}; do sleep 0.5; done'")


def test_the_nodes_have_no_network_and_the_environment_all_the_same(connect: Callable[[str], Any]) -> None:
    for name in ("n1", "n2"):
        host = connect(name)
        assert host.check_output("ip route show default") == ""
        assert host.check_output("cat /etc/apt/sources.list.d/*").startswith("deb [trusted=yes] file:")
        assert host.package("python3-venv").is_installed
        host.check_output(f"{ROOT}/torch/bin/python -c 'import torch, numpy'")
        assert host.file(f"{ROOT}/torch/bin/uv").exists


def test_one_node_built_and_the_other_unpacked(n1: Any, n2: Any) -> None:
    stamp = f"{ROOT}/torch/.gpuops.json"
    assert n1.file(stamp).content_string == n2.file(stamp).content_string
    times = [host.check_output(f"stat -c %Y {stamp}") for host in (n1, n2)]
    assert times[0] == times[1], "an archive keeps the second"
    for host in (n1, n2):
        target = host.check_output(f"readlink {ROOT}/torch")
        assert sorted(host.check_output(f"ls -A {ROOT}").split()) == ["torch", target]


SHARED_GIVEN: dict[str, Any] = {
    "pytorch_env_root": SHARED,
    "pytorch_env_distribution": "shared",
    "pytorch_env_environments": [
        {"name": "torch", "python": "/usr/local/bin/envpython", "lock_file": "{{ locks }}/{{ release }}.lock"}
    ],
}


def test_one_environment_on_a_shared_file_system_serves_all(ctl: Any, n1: Any, n2: Any) -> None:
    for host in (n1, n2):
        host.check_output("ln -sf /usr/bin/python3 /usr/local/bin/envpython")
    said = role(**SHARED_GIVEN)
    assert not said.startswith("FAILED"), said
    assert "the distributed run" not in said, "it was asked, on both nodes"
    assert ctl.file("/srv/shared/envs/torch").is_symlink
    assert n2.check_output(f"{SHARED}/torch/bin/python -c 'import torch; print(torch.__file__)'").startswith(SHARED)
    assert changed(role(**SHARED_GIVEN)) == {"n1": 0, "n2": 0}


def test_a_training_job_survives_upgrade_and_the_way_back(ctl: Any, n1: Any, n2: Any) -> None:
    assert not role().startswith("FAILED"), "the batch script names this environment again"
    n1.check_output("rm -f /srv/long.out")
    old = n1.check_output(f"readlink -f {ROOT}/torch")
    train = "/opt/gpuops/examples/train.sbatch train_ddp.py --epochs 100000 --workers 0"
    job = ctl.check_output(f"cd / && sbatch --parsable --nodes=2 --output=/srv/long.out {train}")
    wait(n1, "grep -q ^epoch /srv/long.out")

    upgraded = role(release="new")
    assert "the distributed run found no free nodes" in upgraded, upgraded
    new = n1.check_output(f"readlink -f {ROOT}/torch")
    assert new != old
    assert n2.check_output(f"readlink -f {ROOT}/torch") == new
    n2.check_output(f"{ROOT}/torch/bin/python -c 'import pygments'")
    for host in (n1, n2):
        maps = "cat $(pgrep -f train_ddp.py | sed 's,.*,/proc/&/maps,')"
        loaded = host.check_output(f"{maps} | grep -o '{ROOT}/[^/]*'")
        assert set(loaded.split()) == {old}
    before = n1.check_output("grep -c ^epoch /srv/long.out")
    wait(n1, f"[ $(grep -c ^epoch /srv/long.out) -gt $(({before} + 5)) ]")

    began = time.monotonic()
    back = role(release="old")
    assert changed(back) == {"n1": 1, "n2": 1}, "nothing but the link"
    assert time.monotonic() - began < 240
    assert n1.check_output(f"readlink -f {ROOT}/torch") == old
    assert ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    ctl.check_output(f"scancel {job}")
    wait(ctl, f'[ -z "$(squeue -h -j {job} 2>/dev/null)" ]')


def test_an_archive_on_a_shared_file_system_is_kept_for_nodes_that_come_later(n1: Any, n2: Any) -> None:
    folder = "/srv/shared/archives"
    for host in (n1, n2):
        host.check_output(f"rm -r {ROOT}")
    first = role(pytorch_env_archive_dir=folder)
    assert not first.startswith("FAILED"), first
    (kept,) = n1.check_output(f"ls -A {folder}").split()
    assert kept == n1.check_output(f"readlink {ROOT}/torch") + ".tar"
    n2.check_output(f"rm -r {ROOT}")
    again = role(limit="n2", pytorch_env_archive_dir=folder, pytorch_env_find_links=["/nowhere"])
    assert not again.startswith("FAILED"), again
    stamp = f"{ROOT}/torch/.gpuops.json"
    assert n2.check_output(f"stat -c %Y {stamp}") == n1.check_output(f"stat -c %Y {stamp}")


def test_a_node_whose_builder_failed_keeps_what_it_has(n1: Any, n2: Any) -> None:
    before = [host.check_output(f"ls -A {ROOT}") for host in (n1, n2)]
    said = role(release="new", pytorch_env_find_links=["/nowhere"], pytorch_env_keep=0)
    assert said.startswith("FAILED")
    assert "n2: n1 was to build the environments for all hosts and failed" in said, said
    assert [host.check_output(f"ls -A {ROOT}") for host in (n1, n2)] == before


def test_another_python_is_refused_on_every_node_before_anything_changes(n1: Any) -> None:
    before = n1.check_output(f"ls -la {ROOT}")
    wrong = {"name": "torch", "python_version": "3.9", "lock_file": "{{ locks }}/new.lock"}
    said = role(pytorch_env_environments=[wrong])
    assert said.startswith("FAILED")
    for host in ("n1", "n2"):
        assert f"{host}: pytorch_env_environments: torch: /usr/bin/python3 (python) is Python 3.11" in said, said
    assert "python_version wants 3.9" in said
    assert changed(said) == {"n1": 0, "n2": 0}
    assert n1.check_output(f"ls -la {ROOT}") == before


def test_a_node_that_cannot_use_the_shared_environment_is_named(n2: Any) -> None:
    n2.check_output("rm /usr/local/bin/envpython")
    missing = role(**SHARED_GIVEN)
    assert missing.startswith("FAILED")
    assert "/usr/local/bin/envpython (python) does not run" in missing

    n2.check_output("ln -sf /usr/bin/python3 /usr/local/bin/envpython && systemctl stop shared && mkdir -p /srv/shared")
    elsewhere = role(**SHARED_GIVEN)
    n2.check_output("systemctl reset-failed shared || true")
    assert elsewhere.startswith("FAILED")
    assert f"{SHARED} has no torch-" in elsewhere
    assert "is it the file system that the building host writes?" in elsewhere
