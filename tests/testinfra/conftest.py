"""Hosts of the lab for the tests of a scenario: real ssh connections to the systems that the scenario made.

`./run lab` writes an ssh configuration for each lab; GPUOPS_LAB_NAME says which lab is meant.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testinfra

# Its asserts say what was compared, as those of the tests that load it.
pytest.register_assert_rewrite("tests.testinfra.faults")

Host = Any
PROJECT = Path(__file__).parents[2]


def lab_directory() -> Path:
    """The state directory of the lab under test; the same rule as in tests/lab."""
    cache = os.environ.get("GPUOPS_CACHE")
    if not cache:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuops")
    return Path(cache) / "labs" / os.environ.get("GPUOPS_LAB_NAME", "lab")


@pytest.fixture(scope="session")
def connect() -> Callable[[str], Host]:
    """A function from a host's name in the lab ("ctl", "n1", …) to its testinfra host, connected as root."""
    config = lab_directory() / "ssh_config"
    if not config.exists():
        pytest.fail(f"no lab is up under {config.parent}")
    known: dict[str, Host] = {}

    def get(name: str) -> Host:
        if name not in known:
            known[name] = testinfra.get_host(f"ssh://{name}", ssh_config=str(config), controlpersist=60)
        return known[name]

    return get


@pytest.fixture(scope="session")
def ctl(connect: Callable[[str], Host]) -> Host:
    return connect("ctl")


@pytest.fixture(scope="session")
def n1(connect: Callable[[str], Host]) -> Host:
    return connect("n1")


@pytest.fixture(scope="session")
def n2(connect: Callable[[str], Host]) -> Host:
    return connect("n2")


@pytest.fixture(scope="session")
def module() -> Callable[..., dict[str, Any]]:
    """Run one module on one host of the lab, as `ansible -m` does: module(host, name, check=…, **arguments)."""

    def run(host: str, module_name: str, /, check: bool = False, **arguments: Any) -> dict[str, Any]:
        command = [
            "ansible",
            host,
            "-i",
            str(PROJECT / "inventories/lab"),
            "-m",
            module_name,
            # An empty dictionary would be taken for free text.
            *(["-a", json.dumps(arguments)] if arguments else []),
        ]
        done = subprocess.run(
            [*command, *(["--check"] if check else [])],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
        )
        # "n1 | SUCCESS => {…}", or FAILED! or CHANGED.
        verdict, _arrow, text = done.stdout.partition("=> ")
        answer: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
        answer["failed"] = "FAILED" in verdict
        return answer

    return run


@pytest.fixture(scope="session")
def lock(connect: Callable[[str], Host]) -> dict[str, str]:
    """Locks of the lab's wheelhouse, what only tests install included: line by project."""
    lines: list[str] = []
    for folder in ("wheels", "wheels/tools"):
        lines += connect("n1").file(f"/srv/gpuops-lab/{folder}/requirements.txt").content_string.splitlines()
    return {line.split("==")[0]: line for line in lines}
