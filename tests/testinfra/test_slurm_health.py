"""node_health around real jobs: no job starts on a sick GPU, what a job leaves behind ends, drains are ours or not."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Host = Any
PROJECT = Path(__file__).parents[2]
LAB = os.environ.get("GPUOPS_LAB_NAME", "lab")
PROGRAM = "/usr/local/lib/gpuops/node_health"


def until(question: Callable[[], Any], seconds: float = 180.0) -> Any:
    """What the question answers as soon as that is true; the last answer after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return answer


def fault(*words: str) -> None:
    subprocess.run(["./run", "lab", "fault", "--name", LAB, "n1", *words], cwd=PROJECT, check=True, capture_output=True)


def node(ctl: Host, name: str) -> str:
    return str(ctl.check_output(f"scontrol --oneliner show node {name}"))


@pytest.fixture(autouse=True)
def _healthy(ctl: Host, n1: Host) -> Iterator[None]:
    yield
    fault("--clear")
    ctl.run("scancel --partition=main")
    n1.run(f"{PROGRAM} --acknowledge; rm -f /run/gpuops/*.json")
    if "DRAIN" in node(ctl, "n1"):
        ctl.check_output("scontrol update nodename=n1 state=resume")
    free = until(lambda: not ctl.check_output("squeue -h") and "State=IDLE " in node(ctl, "n1"), 300)
    assert free, ctl.check_output("squeue; sinfo -N -o '%N %T %E'")


def test_slurm_runs_the_programs_around_a_job(ctl: Host, n1: Host) -> None:
    config = ctl.check_output("scontrol show config")
    assert f"{PROGRAM}_prolog" in config and f"{PROGRAM}_epilog" in config
    n1.run("rm -f /run/gpuops/node_health_job.json")
    ctl.check_output("srun -Q -w n1 -n1 --mem=16 true")
    kept = until(lambda: n1.file("/run/gpuops/node_health_job.json").exists)
    assert kept, "no prolog and no epilog ran"
    assert json.loads(n1.file("/run/gpuops/node_health_job.json").content_string)["healthy"] is True


def test_no_job_starts_on_a_sick_gpu_and_it_runs_elsewhere(ctl: Host) -> None:
    fault("row_remap_failed=2")
    # The prolog's answer counts for a second (prepare.yml): let that of the last job go by.
    job = ctl.check_output(
        "sbatch --parsable -p main -n1 --mem=16 --gres=gpu:1 -o /dev/null --begin=now+2 --nodelist=n1 --wrap hostname"
    )
    assert until(lambda: "DRAIN" in node(ctl, "n1")), ctl.check_output(f"scontrol show job {job}")
    assert "Reason=node_health: row_remap_failed GPU 2 [" in node(ctl, "n1")
    back = until(lambda: ctl.check_output(f"squeue -h -j {job} -o %T") == "PENDING")
    assert back, ctl.check_output(f"scontrol show job {job}")
    assert not ctl.check_output(f"sacct -nPX -j {job} -o State").count("COMPLETED")
    # Slurm lets it wait for two minutes, but nobody holds it: as soon as it may, it runs on the other node.
    assert "Priority=0 " not in ctl.check_output(f"scontrol --oneliner show job {job}")
    ctl.check_output(f"scontrol update jobid={job} reqnodelist= starttime=now")
    assert until(lambda: "COMPLETED" in ctl.check_output(f"sacct -nPX -j {job} -o State,NodeList"), 300), (
        ctl.check_output(f"scontrol show job {job}")
    )
    assert ctl.check_output(f"sacct -nPX -j {job} -o State,NodeList").splitlines()[-1] == "COMPLETED|n2"


def test_the_trial_job_leaves_a_sick_node_out_and_proves_the_other(module: Callable[..., Any], ctl: Host) -> None:
    fault("row_remap_failed=4")
    proof = module("ctl", "gpuops.cluster.slurm_verify", nodes={"n1": {"h100": 8}, "n2": {"h100": 8}}, timeout=300)
    assert not proof["failed"], proof
    assert len(proof["not_asked"]) == 1, proof
    assert proof["not_asked"][0].startswith("n1 is drain") and "row_remap_failed GPU 4" in proof["not_asked"][0]
    assert [job["nodes"] for job in proof["jobs"]][-1] == ["n2"]


def test_what_waits_for_the_job_s_end_drains_then(ctl: Host) -> None:
    fault("row_remap_pending=3")
    job = ctl.check_output("sbatch --parsable -p main -w n1 -n1 --mem=16 -o /dev/null --wrap 'sleep 300'")
    assert until(lambda: ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING"), ctl.check_output("squeue; sinfo")
    assert "DRAIN" not in node(ctl, "n1"), "a job may still start"
    ctl.check_output(f"scancel {job}")
    assert until(lambda: "DRAIN" in node(ctl, "n1"))
    assert "Reason=node_health: row_remap_pending GPU 3 [" in node(ctl, "n1")


def test_what_a_job_leaves_behind_ends_and_nothing_else(ctl: Host, n1: Host) -> None:
    """Containers hold no cgroups of jobs, so that a process which makes itself a daemon outlives its job."""
    n1.check_output("setsid sleep 4242 >/dev/null 2>&1 </dev/null & echo $! > /tmp/other")
    ctl.check_output(
        "srun -Q -w n1 -n1 --mem=16 sh -c 'setsid setsid sleep 4243 >/dev/null 2>&1 </dev/null & sleep 1; echo $PPID'"
    )
    assert until(lambda: n1.run("pgrep -f 'sleep 424[3]'").rc == 1), "the job's daemon still runs"
    assert n1.run("kill $(cat /tmp/other)").rc == 0, "a process that is none of the job's was ended"
    assert "DRAIN" not in node(ctl, "n1")


def test_a_broken_checker_drains_nobody_and_lets_jobs_start(ctl: Host, n1: Host) -> None:
    n1.check_output("cp -p /etc/gpuops/node_health.json /tmp/settings; echo '{' > /etc/gpuops/node_health.json")
    try:
        assert n1.run(f"{PROGRAM}_slurm").rc == 2
        assert ctl.run("srun -Q -w n1 -n1 --mem=16 --immediate=60 true").rc == 0
        assert "DRAIN" not in node(ctl, "n1")
    finally:
        n1.check_output("cp -p /tmp/settings /etc/gpuops/node_health.json")


def test_only_its_own_drain_is_given_back(ctl: Host, n1: Host) -> None:
    resuming = 'sed \'s/"resume": false/"resume": true/\' /etc/gpuops/node_health.json > /tmp/resume.json'
    n1.check_output(resuming)
    asked = f"{PROGRAM} --slurm --settings /tmp/resume.json"
    ctl.check_output("scontrol update nodename=n1 state=drain reason='new cable, ask Eve'")
    assert n1.run(asked).rc == 0
    assert "Reason=new cable, ask Eve [" in node(ctl, "n1")
    ctl.check_output("scontrol update nodename=n1 state=resume")
    fault("ecc_uncorrectable=5:8")
    assert n1.run(asked).rc == 1
    assert "Reason=node_health: ecc_uncorrectable GPU 5 [" in node(ctl, "n1")
    fault("--clear")
    assert n1.run(f"{PROGRAM}_slurm").rc == 0
    assert "DRAIN" in node(ctl, "n1"), "nobody asked for a resume"
    assert "resumed" in n1.check_output(asked)
    assert until(lambda: "DRAIN" not in node(ctl, "n1"))
