"""The gate on a real Slurm cluster: what it installed, what it reported, and what it says of nodes with faults."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.testinfra.faults import until

Host = Any
PROJECT = Path(__file__).resolve().parents[2]
REPORTS = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "/nonexistent")) / "reports"
SCHEMA = json.loads((PROJECT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
FAULT = "/etc/gpuops-lab-nccl-fault"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return read(REPORTS)


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "acceptance.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA)
    return found


def command(folder: Path, **variables: Any) -> list[str]:
    """The scenario's gate once more, measuring, with its report in `folder`."""
    given = {"nccl_tests_always": True, "nccl_tests_launches": 1, "nccl_tests_report_dir": str(folder), **variables}
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    return [program, "-i", "inventories/lab", "-e", json.dumps(given), "molecule/nccl_tests/converge.yml"]


def gate(folder: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, **variables), cwd=PROJECT, capture_output=True, text=True, check=False)


@pytest.fixture
def fault_on_n2(n2: Host) -> Iterator[Callable[[str], None]]:
    """A function that gives n2 a fault; it is gone after the test."""

    def give(fault: str) -> None:
        n2.check_output("echo %s > %s", fault, FAULT)

    yield give
    n2.check_output("rm -f %s", FAULT)


def test_same_programs_on_every_node(n1: Host, n2: Host) -> None:
    sums = "cd /opt/nccl-tests/bin && sha256sum *_perf"
    assert n1.check_output(sums) == n2.check_output(sums)
    assert "all_reduce_perf" in n1.check_output(sums)


def test_compiler_on_the_build_host_alone(n1: Host, n2: Host) -> None:
    assert n1.package("libopenmpi-dev").is_installed
    assert not n2.package("libopenmpi-dev").is_installed


def test_report_says_pass_and_lab(report: dict[str, Any]) -> None:
    assert report["verdict"] == "pass"
    assert report["note"].startswith("Lab")
    assert [stage["name"] for stage in report["stages"]] == ["preflight", "nodes", "cluster"]
    assert "configured" in report["expected"]["derivation"]
    assert "TCP" in report["expected"]["derivation"]


def test_all_gpus_of_all_nodes_took_part(report: dict[str, Any]) -> None:
    together = report["stages"][2]["results"][0]
    assert together["nodes"] == ["n1", "n2"]
    assert len(together["samples"]) >= 3
    log = (REPORTS / "logs" / "cluster-all_reduce-1.log").read_text(encoding="utf-8")
    devices = [line.split() for line in log.splitlines() if line.startswith("#  Rank")]
    assert len(devices) == 8
    assert {words[words.index("on") + 1] for words in devices} == {"n1", "n2"}
    assert all("A100" in " ".join(words) for words in devices)


def test_other_reports_are_there() -> None:
    suites = {str(suite.get("name")): suite for suite in ET.parse(REPORTS / "acceptance.junit.xml").getroot()}
    assert [int(suites[name].get("tests", 0)) for name in ("nodes", "cluster")] == [2, 1]
    looked = {str(case.get("name")) for case in suites["preflight"]}
    assert {"gpu_facts on n1", "allocation on n2", "shm on n1", "same_nccl on n2"} <= looked
    assert 'gpuops_acceptance_verdict{verdict="pass"} 1' in (REPORTS / "acceptance.prom").read_text(encoding="utf-8")
    assert "Lab: simulated GPUs" in (REPORTS / "acceptance.html").read_text(encoding="utf-8")


def test_wrong_data_of_one_gpu_is_named(tmp_path: Path, fault_on_n2: Callable[[str], None]) -> None:
    fault_on_n2("wrong/2")
    done = gate(tmp_path)
    assert done.returncode != 0
    found = read(tmp_path)
    assert found["verdict"] == "fail"
    assert [(one["kind"], one["host"], one["device"]) for one in found["culprits"]] == [("gpu", "n2", "2")]


def test_a_hang_is_a_result(tmp_path: Path, fault_on_n2: Callable[[str], None], n1: Host) -> None:
    fault_on_n2("hang")
    done = gate(tmp_path, nccl_tests_timeout=60, nccl_tests_isolate=False)
    assert done.returncode != 0
    found = read(tmp_path)
    assert [(one["kind"], one["host"]) for one in found["culprits"]] == [("node", "n2")]
    assert "did not end within" in found["culprits"][0]["evidence"]
    assert found["stages"][1]["results"][0]["status"] == "pass", "n1 is not drawn into it"
    assert n1.check_output("squeue --noheader") == "", "nothing is left in the queue"


@contextlib.contextmanager
def measuring(folder: Path, node: Host, seconds: int) -> Iterator[subprocess.Popen[bytes]]:
    """The gate, from when it measures on a node that hangs. At the end its control node is killed, if it still runs."""
    with subprocess.Popen(
        command(folder, nccl_tests_timeout=seconds), cwd=PROJECT, stdout=subprocess.DEVNULL, start_new_session=True
    ) as run:
        try:
            assert until(lambda: node.run("pgrep all_reduce_perf").rc == 0)
            yield run
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)


def test_the_control_node_is_killed_while_it_measures(
    tmp_path: Path, fault_on_n2: Callable[[str], None], n1: Host, n2: Host
) -> None:
    assert gate(tmp_path).returncode == 0
    reports = {path: path.read_bytes() for path in tmp_path.glob("acceptance*")}
    assert len(reports) >= 4
    fault_on_n2("hang")
    with measuring(tmp_path, n2, seconds=60):
        pass
    assert {path: path.read_bytes() for path in tmp_path.glob("acceptance*")} == reports, "the last verdict still holds"
    assert until(lambda: n1.check_output("squeue --noheader") == "", 300), "Slurm has its nodes back"
    fault_on_n2("")
    done = gate(tmp_path)
    assert done.returncode == 0, done.stdout
    assert read(tmp_path)["verdict"] == "pass"


def test_a_cancelled_allocation_accuses_nobody(
    tmp_path: Path, fault_on_n2: Callable[[str], None], n1: Host, n2: Host
) -> None:
    fault_on_n2("hang")
    with measuring(tmp_path, n2, seconds=120) as run:
        n1.check_output("squeue --noheader --format=%A | xargs scancel")
        assert run.wait(600) != 0
    found = read(tmp_path)
    assert (found["verdict"], found["culprits"]) == ("blocked", [])
    assert "ended before the gate did" in found["next_action"]


def test_check_mode_shows_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    words = [*command(tmp_path / "reports"), "--check"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "plan: every node alone" in " ".join(done.stdout.split())
    assert not (tmp_path / "reports").exists()
