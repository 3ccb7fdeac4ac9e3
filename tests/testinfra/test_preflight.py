"""Preflight against real hosts with something wrong: one message that names all of it, and nothing changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
PLAY = PROJECT / "molecule/preflight/converge.yml"


def run(*arguments: str, inventory: dict[str, Any] | None = None, folder: Path | None = None) -> tuple[int, str]:
    """ansible-playbook with the lab's inventory, and one more where it is given; its exit code and its output."""
    command = ["ansible-playbook", str(PLAY), "-i", str(PROJECT / "inventories/lab")]
    if inventory is not None and folder is not None:
        (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
        command += ["-i", str(folder / "hosts.json")]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
    )
    return done.returncode, done.stdout + done.stderr


def test_healthy_hosts_pass_and_nothing_changes() -> None:
    code, output = run()
    assert code == 0, output
    assert re.findall(r"changed=(\d+)", output) == ["0"] * 3


def test_check_mode_says_the_same() -> None:
    code, output = run("--check")
    assert code == 0, output


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    """A host that does not answer and one whose address another has, in one message."""
    wrong = {
        "gpu_nodes": {
            "hosts": {
                "down": {
                    "ansible_host": "127.0.0.1",
                    "ansible_port": 9,
                    "ansible_ssh_common_args": "-o ConnectTimeout=2",
                },
            }
        },
        "login_nodes": {
            "hosts": {"twin": {"ansible_host": "127.0.0.1", "ansible_connection": "ssh", "ansible_port": 9}}
        },
    }
    code, output = run(inventory=wrong, folder=tmp_path)
    assert code != 0
    assert "nothing was changed" in output
    assert "down: does not answer" in output
    assert "down, twin: have the same address 127.0.0.1" in output
    assert "changed=1" not in output


def test_a_host_without_python_is_named(n2: Any) -> None:
    """Another interpreter path that does not exist stands for a host that has none."""
    code, output = run("-e", '{"ansible_python_interpreter": "/opt/none/python3"}')
    assert code != 0
    assert "n2: has no Python; install python3" in output


def test_names_that_do_not_resolve_are_named() -> None:
    code, output = run("-e", '{"preflight_resolve_names": ["no-such-host.invalid"]}')
    assert code != 0
    for host in ("ctl", "n1", "n2"):
        assert f"{host}: cannot resolve no-such-host.invalid" in output


def test_an_inventory_without_gpu_hosts_is_refused() -> None:
    code, output = run("-e", '{"preflight_gpu_hosts": []}')
    assert code != 0
    assert "group gpu_nodes is missing or empty (preflight_gpu_hosts); groups seen:" in output


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ('{"preflight_free_mib": {"/": 999999999}}', "999999999 wanted for / (preflight_free_mib)"),
        ('{"preflight_python_minimum": "9.9"}', "at least 9.9 is needed"),
        ('{"preflight_supported_systems": [{"id": "plan9", "version": "4"}]}', "supported are plan9 4"),
    ],
)
def test_limits_are_those_of_the_variables(variable: str, message: str) -> None:
    code, output = run("-e", variable)
    assert code != 0
    assert message in output


def test_versions_that_do_not_go_together_are_refused_with_what_would(n1: Any) -> None:
    """The lab's CUDA only compiles; if its programs ran, Debian's driver would be too old for them."""
    code, output = run("-e", '{"preflight_cuda": "13.0", "cuda_toolkit_run_kernel": true}')
    assert code != 0
    assert "n1, n2: driver 535" in output
    assert "does not run programs of CUDA 13.0, which needs 580.65.06 or newer" in output
    assert "driver 580 or newer with CUDA 13.0" in output
    code, output = run("-e", '{"preflight_cuda": "13.0", "preflight_cuda_runs": false}')
    assert code == 0, output


def test_gpus_without_a_driver_are_compared_by_their_numbers_on_the_bus(n1: Any) -> None:
    code, output = run("-e", '{"preflight_driver": "450", "preflight_cuda": "10.2"}')
    assert code != 0
    assert "10de:20b" in output
    assert "(Ampere) needs CUDA 11.0 or newer, not 10.2" in output
