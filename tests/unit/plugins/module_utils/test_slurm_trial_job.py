"""What the trial job and the nodes' states are taken for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_trial_job as trial


def test_a_node_in_two_partitions() -> None:
    nodes = trial.parse_nodes(
        "n1|idle|main*|Unknown|none\nn1|idle|debug|Unknown|none\nn2|down*|main*|slurm|Not responding\n"
    )
    assert nodes["n1"] == {"state": "idle", "partitions": ["main", "debug"], "user": "Unknown", "reason": "none"}
    assert nodes["n2"]["state"] == "down*"


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        ("idle", "none", "idle"),
        ("idle*", "none", "waiting"),
        ("unknown", "none", "waiting"),
        ("down*", "Not responding", "waiting"),
        ("mixed", "none", "busy"),
        ("allocated", "none", "busy"),
        ("completing", "none", "busy"),
        ("drained", "disk swap, ticket 7", "held"),
        ("draining", "bad cable", "held"),
        ("maint", "none", "held"),
        ("mixed-", "none", "busy"),
        ("mixed*", "none", "waiting"),
        ("completing*", "none", "waiting"),
        ("drained*", "disk swap, ticket 7", "held"),
        ("drained", "gres/gpu count reported lower than configured (0 < 8)", "bad"),
        ("drained*", "Low RealMemory", "bad"),
        ("drained", "gres/gpu GRES core specification 0 for node n1 doesn't match socket boundaries.", "bad"),
        ("drained", "Kill task failed", "held"),
        ("inval", "Low socket*core*thread count", "waiting"),
    ],
)
def test_standing(state: str, reason: str, kind: str) -> None:
    node = {"state": state, "partitions": ["main"], "user": "slurm", "reason": reason}
    assert trial.standing(node) == kind


def test_what_an_operator_writes_is_his_decision() -> None:
    node = {"state": "drained", "partitions": ["main"], "user": "root", "reason": "gres/gpu count looked low"}
    assert trial.standing(node) == "held"
    assert trial.standing({**node, "reason": "SlurmdSpoolDir is full"}) == "bad", "slurmd itself says that, as root"


def test_an_unknown_node_is_bad() -> None:
    assert trial.standing(None) == "bad"


def test_one_job_for_each_kind_of_node() -> None:
    nodes = {name: {"state": "idle", "partitions": ["main"], "reason": ""} for name in ("n1", "n2", "n3")}
    jobs = trial.groups(["n1", "n2", "n3"], nodes, {"n1": {"h100": 8}, "n2": {"h100": 8}, "n3": {}})
    assert [(job["nodes"], job["gpus"]) for job in jobs] == [(["n1", "n2"], {"h100": 8}), (["n3"], {})]


def test_one_job_spans_nodes_of_overlapping_partitions() -> None:
    nodes = trial.parse_nodes("n1|idle|main*|root|none\nn2|idle|debug|root|none\nn2|idle|main*|root|none\n")
    jobs = trial.groups(["n1", "n2"], nodes, {"n1": {"h100": 8}, "n2": {"h100": 8}})
    assert [(job["partition"], job["nodes"]) for job in jobs] == [("main", ["n1", "n2"])]


GROUP: dict[str, Any] = {"partition": "main", "gpus": {"h100": 2}, "nodes": ["n1", "n2"]}


def test_a_good_job() -> None:
    assert trial.judge(GROUP, "verify|7|n1|0,1|0,1\nnoise\nverify|7|n2|0,1|0,1\n") == ("7", [])


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("verify|7|n1|0,1|0,1\n", "n2: no task of the job ran there"),
        ("verify|7|n1|0,1|0,1\nverify|7|n2|0|0\n", "n2: SLURM_STEP_GPUS is '0', expected 2 different GPUs"),
        ("verify|7|n1|0,1|0,0\nverify|7|n2|0,1|0,1\n", "n1: CUDA_VISIBLE_DEVICES is '0,0'"),
        ("", "n1: no task of the job ran there"),
    ],
)
def test_bad_jobs(output: str, words: str) -> None:
    assert any(words in problem for problem in trial.judge(GROUP, output)[1])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("COMPLETED|billing=2,cpu=2,gres/gpu=4,gres/gpu:h100=4,mem=32M,node=2|2\n", ""),
        ("", "no record"),
        ("RUNNING|cpu=2,gres/gpu=4|2\n", "state RUNNING"),
        ("COMPLETED|cpu=2,node=2|2\n", "gres/gpu=0, expected 4"),
        ("COMPLETED|cpu=2,gres/gpu=4|1\n", "on 1 nodes"),
    ],
)
def test_accounting(line: str, words: str) -> None:
    complaint = trial.judge_accounting(GROUP, line)
    assert words in complaint and bool(complaint) is bool(words)
