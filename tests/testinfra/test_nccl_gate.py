"""The gate through real Slurm on eight nodes, with faults in the stand-in: who is named, what is drained, what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import testinfra

Host = Any
PROJECT = Path(__file__).resolve().parents[2]
REPORTS = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "/nonexistent")) / "reports"
SCHEMA = json.loads((PROJECT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
FAULT = "/etc/gpuops-lab-nccl-fault"
NODES = [f"n{i}" for i in range(1, 9)]


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "acceptance.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA)
    return found


def gate(folder: Path, links: str = "0.008,0.002", release: str = "2.17", **variables: Any) -> dict[str, Any]:
    """Run the scenario's gate once more, measuring; returns its report, which is a pass only if the play passed."""
    given = {
        "nccl_tests_always": True,
        "nccl_tests_launches": 1,
        "nccl_tests_report_dir": str(folder),
        "nccl_tests_environment": {"NCCL_TESTS_LAB_LINKS": links, "NCCL_TESTS_LAB_RELEASE": release},
        **variables,
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventories/lab"]
    done = subprocess.run(
        [*command, "-e", json.dumps(given), "molecule/nccl_gate/converge.yml"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (folder / "acceptance.json").is_file(), done.stdout + done.stderr
    report = read(folder)
    assert (done.returncode == 0) == (report["verdict"] == "pass"), done.stdout
    return report


def guilty(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(one["kind"], one["host"], one["device"]) for one in report["culprits"]}


@pytest.fixture
def faults() -> Iterator[Callable[..., None]]:
    """A function that gives nodes faults; they are gone after the test."""
    ran: list[Host] = []

    def give(**by_node: str) -> None:
        for name, fault in by_node.items():
            host = testinfra.get_host(f"ansible://{name}", ansible_inventory=str(PROJECT / "inventories/lab"))
            host.check_output("echo %s > %s", fault, FAULT)
            ran.append(host)

    yield give
    for host in ran:
        host.check_output("rm -f %s", FAULT)


def test_eight_good_nodes_pass() -> None:
    report = read(REPORTS)
    assert report["verdict"] == "pass"
    assert report["stages"][2]["results"][0]["nodes"] == NODES
