"""The whole site on the lab: what a user would look at first, asked of the running cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
LAB = os.environ.get("GPUOPS_LAB_NAME", "lab")
NODES, GPUS = 2, 4


def wait_for(what: Callable[[], bool], seconds: float = 180) -> None:
    """Wait until something is true; the last answer counts."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(1)


def test_every_gpu_of_every_node_is_seen_by_a_job(ctl: Any) -> None:
    said = ctl.check_output(f"srun -N{NODES} --gpus-per-node={GPUS} nvidia-smi -L")
    uuids = re.findall(r"UUID: (GPU-\S+)\)", said)
    assert len(uuids) == NODES * GPUS
    assert ctl.run(f"srun -N{NODES} --gpus-per-node={GPUS + 1} true").rc != 0


def test_accounting_keeps_the_job_with_its_gpus(ctl: Any) -> None:
    ctl.check_output(f"srun --job-name=accounted -N{NODES} --gpus-per-node={GPUS} true")

    def told() -> bool:
        said = ctl.check_output("sacct -n -P -X --name=accounted --format=State,AllocTRES")
        return f"gres/gpu={NODES * GPUS}" in said and "COMPLETED" in said

    wait_for(told)


def test_a_user_reaches_any_node_from_any_other_without_a_prompt(connect: Callable[[str], Any]) -> None:
    options = "-o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10"
    for source in ("ctl", "n1", "n2"):
        for target in ("ctl", "n1", "n2"):
            if source != target:
                assert connect(source).check_output(f"ssh {options} {target} hostname") == target


def test_versions_are_locked_and_the_compiler_is_there(n1: Any) -> None:
    assert "nvidia-smi" in n1.check_output("apt-mark showhold").split()
    assert "release 13.0" in n1.check_output("bash -lc 'nvcc --version'")


def test_the_gate_left_a_passing_report_that_says_lab() -> None:
    folder = PROJECT / "reports" / LAB
    report = json.loads((folder / "acceptance.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "pass"
    assert {stage["name"] for stage in report["stages"]}
    for name in ("acceptance.junit.xml", "acceptance.prom", "acceptance.html"):
        assert (folder / name).stat().st_size > 0
    assert "Lab: simulated GPUs" in (folder / "acceptance.html").read_text(encoding="utf-8")


def test_prometheus_sees_every_node_and_its_gpus(ctl: Any) -> None:
    def ask(query: str) -> list[dict[str, Any]]:
        said = ctl.check_output(f"curl -s --get --data-urlencode 'query={query}' http://localhost:9090/api/v1/query")
        rows: list[dict[str, Any]] = json.loads(said)["data"]["result"]
        return rows

    # What the package's own configuration scraped before ours lingers for five minutes; it is not asked.
    up = ask('up{job="node", instance=~"ctl|n1|n2"}')
    assert {row["metric"]["instance"]: row["value"][1] for row in up} == {"ctl": "1", "n1": "1", "n2": "1"}


@pytest.fixture
def sick(connect: Callable[[str], Any]) -> Iterator[str]:
    """A node with a memory row that could not be remapped; healthy and resumed afterwards."""
    subprocess.run([str(PROJECT / "run"), "lab", "fault", "--name", LAB, "n1", "row_remap_failed=2"], check=True)
    yield "n1"
    subprocess.run([str(PROJECT / "run"), "lab", "fault", "--name", LAB, "n1", "--clear"], check=True)
    connect("ctl").run("scontrol update nodename=n1 state=resume")


def test_slurm_drains_a_node_with_a_sick_gpu_and_says_why(ctl: Any, n1: Any, sick: str) -> None:
    """Called as Slurm calls it; that Slurm calls it is what slurm.conf says."""
    program = ctl.check_output("scontrol show config | awk '/^HealthCheckProgram/ {print $3}'")
    assert n1.run(program).rc == 1
    shown = ctl.check_output(f"scontrol show node {sick}")
    assert "DRAIN" in shown
    assert "Reason=node_health: row_remap_failed GPU 2" in shown
    # Somebody else's reason is kept.
    ctl.check_output(f"scontrol update nodename={sick} state=resume")
    ctl.check_output(f"scontrol update nodename={sick} state=drain reason='disk is replaced'")
    n1.run(program)
    assert "Reason=disk is replaced" in ctl.check_output(f"scontrol show node {sick}")


def test_the_archive_installed_elsewhere_runs_the_site_and_changes_nothing(tmp_path: Path) -> None:
    """What ansible-galaxy builds and installs is complete: run from a fresh directory, against the converged lab."""
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections")}
    environment.pop("ANSIBLE_CONFIG", None)

    def call(*command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=900
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return done.stdout

    call("ansible-galaxy", "collection", "build", str(PROJECT), "--output-path", str(tmp_path))
    (archive,) = tmp_path.glob("gpuops-cluster-*.tar.gz")
    call("ansible-galaxy", "collection", "install", str(archive), "-p", str(tmp_path / "collections"))
    installed = tmp_path / "collections/ansible_collections/gpuops/cluster"
    assert not list(installed.glob("tests")) and not list(installed.glob("molecule")) and not list(installed.glob(".*"))

    said = call("ansible-playbook", "gpuops.cluster.site", "-i", str(PROJECT / "inventories/lab"))
    recap = re.findall(r"^(\w+) +: ok=(\d+) +changed=(\d+) .* skipped=(\d+)", said, flags=re.MULTILINE)
    assert [(host, changed) for host, _ok, changed, _skipped in recap] == [("ctl", "0"), ("n1", "0"), ("n2", "0")]
    # Each task costs the control node a process for each host, also where it is skipped: docs/architecture.md.
    assert max(int(ok) + int(skipped) for _host, ok, _changed, skipped in recap) < 180, said[-2000:]
