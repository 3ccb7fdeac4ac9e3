"""The gate through real Slurm on eight nodes, with faults in the stand-in: who is named, who is drained."""

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


def gate(folder: Path, links: str = "0.002,0.001", release: str = "2.17", **variables: Any) -> dict[str, Any]:
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
def faults(connect: Callable[[str], Host]) -> Iterator[Callable[..., None]]:
    """A function that gives nodes faults; they are gone after the test."""

    def give(**by_node: str) -> None:
        for name, fault in by_node.items():
            connect(name).check_output("echo %s > %s", fault, FAULT)

    yield give
    for name in NODES:
        connect(name).check_output("rm -f %s", FAULT)


@pytest.fixture
def resumed(ctl: Host) -> Iterator[None]:
    """Nodes that a test drained take jobs again afterwards."""
    yield
    for name in drained(ctl):
        ctl.check_output("scontrol update NodeName=%s State=RESUME", name)


def drained(ctl: Host) -> dict[str, str]:
    """Slurm's own view: the reason of each node that is drained or draining."""
    lines = ctl.check_output("sinfo --noheader --Node --format='%n|%T|%E'").splitlines()
    return {name: why for name, state, why in (line.split("|", 2) for line in lines) if "drain" in state}


def test_eight_good_nodes_pass() -> None:
    """Pairs of iperf3 go across leaves, which nobody declared: they are those of Slurm's topology."""
    report = read(REPORTS)
    assert report["verdict"] == "pass"
    stages = {stage["name"]: stage["results"] for stage in report["stages"]}
    assert stages["cluster"][0]["nodes"] == NODES
    wires = {tuple(check["nodes"]): check["figures"][0]["value"] for check in stages["wire"]}
    assert set(wires) == {(f"n{i}", f"n{i + 4}") for i in range(1, 5)}, "iperf3 of every pair across leaves"
    assert all(gbps > 0.001 for gbps in wires.values())
    assert report["counters"] == [] or all(entry["host"] in NODES for entry in report["counters"])
    log = (REPORTS / "logs" / "counters-during.log").read_text(encoding="utf-8")
    assert {line.split("\t")[1] for line in log.splitlines() if "\tcelsius\t" in line} == set(NODES), (
        "seen while it ran"
    )


@pytest.mark.parametrize("release", ["2.10", "2.13"])
def test_older_releases_are_read(tmp_path: Path, release: str) -> None:
    report = gate(tmp_path, release=release, nccl_tests_stages=["nodes"])
    assert report["verdict"] == "pass"
    log = (tmp_path / "logs" / "nodes-n1-1.log").read_text(encoding="utf-8")
    assert "nccl-tests version" not in log
    assert ("root" in log) == (release == "2.13")


def test_every_kind_of_fault_is_named_side_by_side(tmp_path: Path, faults: Callable[..., None]) -> None:
    faults(n1="usage", n2="copies", n3="hang", n4="crash/1", n5="cut", n6="wrong/3", n7="slow:0.1/2")
    report = gate(tmp_path, nccl_tests_timeout=60)
    assert report["verdict"] == "fail"
    by_host = {one["host"]: one for one in report["culprits"]}
    assert set(by_host) == set(NODES) - {"n8"}
    assert {("gpu", "n4", "1"), ("gpu", "n6", "3"), ("gpu", "n7", "2")} < guilty(report)
    words = {"n1": "its usage", "n2": "4 copies", "n3": "did not end within", "n5": "breaks off", "n6": "wrong data"}
    for host, text in words.items():
        assert text in by_host[host]["evidence"], by_host[host]
    alone = {result["nodes"][0]: result["status"] for result in report["stages"][1]["results"]}
    assert alone["n8"] == "pass", "a hang beside it poisons nobody"


def test_slow_network_of_a_node_is_named_and_drained(
    tmp_path: Path, faults: Callable[..., None], resumed: None, ctl: Host
) -> None:
    faults(n6="net:0.1")
    report = gate(tmp_path, nccl_tests_drain_culprits=True)
    assert (report["verdict"], guilty(report)) == ("fail", {("node", "n6", "")})
    assert {result["status"] for result in report["stages"][1]["results"]} == {"pass"}, "it is good alone"
    reasons = drained(ctl)
    assert set(reasons) == {"n6"}, "nobody else is drained"
    assert report["drained"] == ["n6"]
    assert "Drained in Slurm:" in (tmp_path / "acceptance.html").read_text(encoding="utf-8")
    assert reasons["n6"].startswith("nccl_tests: failed with")
    assert ctl.check_output("squeue --noheader") == "", "nothing is left in the queue"


def test_two_faults_of_two_kinds_are_named_in_one_run(tmp_path: Path, faults: Callable[..., None]) -> None:
    faults(n2="slow:0.1/1", n6="net:0.1")
    report = gate(tmp_path)
    assert guilty(report) == {("gpu", "n2", "1"), ("node", "n6", "")}
    assert "Without n2, which failed alone." in (tmp_path / "acceptance.html").read_text(encoding="utf-8")


def test_other_settings_on_one_node_block(tmp_path: Path, connect: Callable[[str], Host]) -> None:
    n3 = connect("n3")
    n3.check_output("echo NCCL_IB_TIMEOUT=1 > /etc/nccl.conf")
    try:
        report = gate(tmp_path)
    finally:
        n3.check_output("rm /etc/nccl.conf")
    assert report["verdict"] == "blocked"
    assert [one["host"] for one in report["blocked"]] == ["n3"]
    assert "NCCL_IB_TIMEOUT=1" in report["blocked"][0]["reason"]


def test_mpirun_over_ssh_without_slurm(tmp_path: Path, faults: Callable[..., None], ctl: Host, resumed: None) -> None:
    faults(n2="net:0.1")
    few: dict[str, Any] = {"nccl_tests_launcher": "mpirun", "nccl_tests_nodes": NODES[:4]}
    report = gate(tmp_path, nccl_tests_drain_culprits=True, **few)
    together = next(stage for stage in report["stages"] if stage["name"] == "cluster")
    assert together["nodes"] == NODES[:4]
    log = (tmp_path / "logs" / "cluster-all_reduce-1.log").read_text(encoding="utf-8")
    seen = {line.split()[line.split().index("on") + 1] for line in log.splitlines() if line.startswith("#  Rank")}
    assert seen == set(NODES[:4]), "ranks on all of them"
    assert guilty(report) == {("node", "n2", "")}
    assert set(drained(ctl)) == {"n2"}


def test_path_between_leaves_drains_nobody(tmp_path: Path, faults: Callable[..., None], ctl: Host) -> None:
    faults(**{one: ",".join(f"net:0.1@{one}+{other}" for other in NODES[4:]) for one in NODES[:4]})
    report = gate(tmp_path, nccl_tests_drain_culprits=True)
    assert guilty(report) == {("path", "leaf leafa and leaf leafb", "")}
    assert drained(ctl) == {}
