"""The modules of Slurm against its real daemons: predicted, done, done again, taken back."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
SETTINGS = {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_NOCOLOR": "1"}
Host = Any
Answer = dict[str, Any]
Module = Callable[..., Answer]


Steps = Callable[..., list[Answer]]


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    """Each call predicted, done and done again, all in one play: says the answers of the real runs."""

    def run(*calls: tuple[str, Answer]) -> list[Answer]:
        tasks = [
            {f"gpuops.cluster.{name}": arguments, "check_mode": check}
            for name, arguments in calls
            for check in (True, False, False)
        ]
        play = tmp_path / "steps.json"
        play.write_text(json.dumps([{"hosts": "ctl", "gather_facts": False, "tasks": tasks}]))
        settings = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), **SETTINGS}
        command = ["ansible-playbook", "-i", "inventories/lab", str(play)]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=settings)
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{"))[0]
        answers = [task["hosts"]["ctl"] for task in told["plays"][0]["tasks"]]
        for predicted, real, again in zip(answers[::3], answers[1::3], answers[2::3]):
            assert [predicted["changed"], real["changed"], again["changed"]] == [True, True, False], (real, again)
            for key in ("told" if "told" in real else "commands", "diff"):
                assert predicted[key] == real[key], "what was predicted is what was done"
        return answers[1::3]

    return run


def rows(ctl: Host, what: str) -> list[list[str]]:
    return [line.split("|") for line in ctl.check_output(f"sacctmgr -nP show {what}").splitlines()]


def until(question: Callable[[], bool], seconds: float = 180.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.3)
    return False


@pytest.fixture(autouse=True)
def _as_before(ctl: Host) -> Iterator[None]:
    """What a test that failed has left behind does not reach the next one."""
    yield
    ctl.run("scancel --partition=main")
    for node in ("n1", "n2"):
        ctl.run(f"scontrol show node {node} | grep -q DRAIN && scontrol update nodename={node} state=resume")
    ctl.run("sacctmgr -i delete account where name=nlp; sacctmgr -i delete qos where name=nightly")


def test_a_qos_comes_and_goes(ctl: Host, steps: Steps) -> None:
    wanted: Answer = {"priority": 7, "max_gpus": 64, "max_gpus_per_job": 16, "max_gpus_per_user": 8}
    wanted |= {"max_jobs_per_user": 20, "max_time": "12:00:00", "preempts": ["normal"], "flags": ["DenyOnLimit"]}
    steps(("slurm_qos", {"name": "nightly", **wanted}))
    shown = "Name,Priority,GrpTRES,MaxTRES,MaxTRESPU,MaxJobsPU,MaxWall,Preempt,Flags"
    gpus = ["gres/gpu=64", "gres/gpu=16", "gres/gpu=8"]
    assert ["nightly", "7", *gpus, "20", "12:00:00", "normal", "DenyOnLimit"] in rows(ctl, f"qos format={shown}")
    # Limits and lists can be taken back, each alone; the rest stays.
    less: Answer = {"max_gpus": -1, "max_gpus_per_user": -1, "max_time": "-1", "preempts": [], "flags": []}
    steps(("slurm_qos", {"name": "nightly", **less}))
    assert ["nightly", "7", "", "gres/gpu=16", "", "20", "", "", ""] in rows(ctl, f"qos format={shown}")
    (gone,) = steps(("slurm_qos", {"name": "nightly", "state": "absent"}))
    assert gone["diff"]["after"] == {} and gone["diff"]["before"]["priority"] == 7
    assert "nightly" not in [row[0] for row in rows(ctl, "qos format=Name")]


def test_an_account_and_its_user_come_and_go(ctl: Host, steps: Steps, module: Module) -> None:
    # Slurm writes names in lower case; the module knows that it is the same account.
    account: Answer = {"name": "NLP", "fairshare": "5", "max_gpus": 6, "max_jobs": 9, "qos": ["normal", "urgent"]}
    alice: Answer = {"name": "alice", "account": "nlp"}
    _added, moved, *_rest = steps(
        ("slurm_account", account),
        ("slurm_account", {"name": "nlp", "parent": "vision", "max_jobs": -1}),
        ("slurm_user", {**alice, "max_gpus": 2, "fairshare": "parent", "default_qos": "normal"}),
        ("slurm_user", {**alice, "default": True, "admin_level": "operator"}),
    )
    assert moved["diff"]["before"] == {"parent": "root", "max_jobs": 9}
    assert moved["diff"]["after"] == {"parent": "vision", "max_jobs": None}
    shown = rows(ctl, "assoc account=nlp format=ParentName,User,Share,GrpTRES,MaxJobs,QOS,DefaultQOS")
    assert ["vision", "", "5", "gres/gpu=6", "", "normal,urgent", ""] in shown
    assert ["", "alice", "parent", "gres/gpu=2", "", "normal,urgent", "normal"] in shown
    assert ["alice", "nlp", "Operator"] in rows(ctl, "user alice format=User,DefaultAccount,AdminLevel")
    job = "su alice -c 'srun -Q -N1 --mem=16 --immediate={} --gres=gpu:{} true'"
    assert ctl.run(job.format(60, 2)).rc == 0
    assert ctl.run(job.format(5, 3)).rc != 0, "alice may have 2 GPUs in this account"

    refused = module("ctl", "gpuops.cluster.slurm_account", name="nlp", state="absent")
    assert refused["failed"] and "account nlp is not empty: user alice" in refused["msg"]
    steps(
        ("slurm_user", {"name": "alice", "account": "vision", "default": True, "admin_level": "none"}),
        ("slurm_user", {**alice, "state": "absent"}),
        ("slurm_account", {"name": "nlp", "state": "absent"}),
    )
    assert ["alice", "vision", "None"] in rows(ctl, "user alice format=User,DefaultAccount,AdminLevel")
    assert "nlp" not in [row[0] for row in rows(ctl, "account format=Account")]


def test_who_leaves_takes_everything_along(ctl: Host, steps: Steps) -> None:
    steps(
        ("slurm_user", {"name": "mallory", "account": "vision"}),
        ("slurm_user", {"name": "mallory", "account": "speech"}),
        ("slurm_user", {"name": "mallory", "state": "absent"}),
        ("slurm_account", {"name": "nlp"}),
        ("slurm_user", {"name": "mallory", "account": "nlp"}),
        ("slurm_account", {"name": "nlp", "state": "absent", "recursive": True}),
    )
    assert rows(ctl, "assoc user=mallory format=Account") == []
    assert "nlp" not in [row[0] for row in rows(ctl, "account format=Account")]


def test_what_slurm_refuses_is_said_in_its_words(module: Module) -> None:
    refused = module("ctl", "gpuops.cluster.slurm_account", name="vision", qos=["nosuchqos"])
    assert refused["failed"] and "nosuchqos" in refused["msg"]
    refused = module("ctl", "gpuops.cluster.slurm_user", name="alice", account="nosuchaccount")
    assert refused["failed"] and "no account nosuchaccount in cluster lab" in refused["msg"]
    refused = module("ctl", "gpuops.cluster.slurm_user", name="alice", account="vision", cluster="moon")
    assert refused["failed"] and "slurmdbd knows no cluster moon; it knows: lab" in refused["msg"]


def test_nodes_are_drained_waited_for_and_given_back(ctl: Host, steps: Steps, module: Module) -> None:
    job = ctl.check_output("sbatch --parsable -o /dev/null -p main -w n1 --mem=16 --wrap 'sleep 600'")
    assert until(lambda: ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING")
    wanted: Answer = {"nodes": ["n[1-2]"], "reason": "driver upgrade"}
    (done,) = steps(("slurm_node", {"state": "drained", **wanted}))
    assert done["told"] == ["n1", "n2"]
    assert done["diff"]["after"] == "n1: out driver upgrade\nn2: out driver upgrade\n"
    assert done["nodes"]["n2"]["reason"] == "driver upgrade"
    assert ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING", "a job that runs is let finish"

    late = module("ctl", "gpuops.cluster.slurm_node", state="drained", wait=True, timeout=1, **wanted)
    assert late["failed"] and "n1 is mixed+drain" in late["msg"] and f"{job} of root on n1" in late["msg"]
    ctl.check_output(f"scancel {job}")
    waited = module("ctl", "gpuops.cluster.slurm_node", state="drained", wait=True, timeout=300, **wanted)
    assert not waited["failed"] and waited["nodes"]["n1"]["states"] == ["idle", "drain"], waited

    (back,) = steps(("slurm_node", {"state": "resumed", "wait": True, "timeout": 300, **wanted}))
    assert back["told"] == ["n1", "n2"]


def test_others_reasons_are_kept(ctl: Host, steps: Steps) -> None:
    ctl.check_output("scontrol update nodename=n2 state=drain reason='new cable, ask Eve'")
    wanted: Answer = {"nodes": ["n1", "n2"], "reason": "driver upgrade"}
    back: Answer = {"state": "resumed", "wait": True, "timeout": 300, **wanted}
    drained, resumed, forced = steps(
        ("slurm_node", {"state": "drained", **wanted}),
        ("slurm_node", back),
        ("slurm_node", {**back, "force": True}),
    )
    assert (drained["told"], resumed["told"], forced["told"]) == (["n1"], ["n1"], ["n2"])
    assert drained["kept"] == resumed["kept"] == ["n2 is out for another reason: new cable, ask Eve"]
    assert "drain" in resumed["nodes"]["n2"]["states"], "it is Eve who gives it back"


def test_a_node_that_is_none_is_named(module: Module) -> None:
    refused = module("ctl", "gpuops.cluster.slurm_node", nodes=["n1", "n9"], state="drained", reason="x")
    assert refused["failed"] and refused["msg"] == "Slurm has no node n9; it has n1, n2"


def test_what_slurm_says_of_itself(ctl: Host, module: Module) -> None:
    job = ctl.check_output(
        "su alice -c \"sbatch --parsable -D /tmp -p main -w n1 --mem=16 --gres=gpu:3 --wrap 'sleep 600'\""
    )
    assert until(lambda: ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING")
    found: Answer = {}

    def seen() -> bool:
        # slurmctld takes a moment until it counts what it has given away.
        found.update(module("ctl", "gpuops.cluster.slurm_info", gather=["nodes", "partitions", "jobs", "accounting"]))
        return bool(found["failed"] or found["nodes"]["n1"]["gpus_used"])

    assert until(seen), found
    assert not found["changed"] and not found["failed"], found
    assert (found["cluster"], found["controllers"]) == ("lab", {"ctl": True})
    assert (found["nodes"]["n1"]["gpus"], found["nodes"]["n1"]["gpus_used"]) == (8, 3)
    assert found["partitions"]["main"] == {"state": "up", "nodes": 2, "max_time": "infinite"}
    expected = {"id": job, "user": "alice", "account": "vision", "partition": "main", "state": "running", "gpus": 3}
    assert [{**each, **expected} for each in found["jobs"]] == found["jobs"] and found["jobs"][0]["nodes"] == ["n1"]
    assert found["accounts"]["speech"]["max_gpus"] == 4
    assert found["users"]["alice"]["default_account"] == "vision"
    assert found["qos"]["urgent"]["priority"] == 100
    ctl.check_output(f"scancel {job}")
    from_a_node = module("n1", "gpuops.cluster.slurm_info", gather=["nodes"])
    assert sorted(from_a_node["nodes"]) == ["n1", "n2"] and "jobs" not in from_a_node
