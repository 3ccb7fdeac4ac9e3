"""Whose drain it is: who may drain and resume which node."""

from __future__ import annotations

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_answers as answers
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_drain as drain

# As 22.05 prints them, shortened.
SHOWN = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=2 CPUAlloc=1 CPUTot=4 CPULoad=0.1 Gres=gpu:h100:8 NodeAddr=n1 RealMemory=4000 \
State=MIXED ThreadsPerCore=1 Partitions=main,debug CfgTRES=cpu=4,mem=4000M,billing=4,gres/gpu=8 \
AllocTRES=cpu=1,gres/gpu=4
NodeName=n2 CPUTot=4 State=IDLE+DRAIN Partitions=main CfgTRES=cpu=4 AllocTRES= \
Reason=new cable, ask [Eve] [root@2026-01-01T10:00:00]
NodeName=n3 CPUTot=4 State=DOWN* Partitions=main CfgTRES=cpu=4 AllocTRES= \
Reason=Not responding [slurm@2026-01-01T10:00:00] Comment=x
NodeName=n4 CPUTot=4 State=IDLE+DRAIN Partitions=main Reason=driver upgrade [root@2026-01-01T10:00:00]
NodeName=n5 CPUTot=4 State=IDLE+DRAIN Partitions=main Reason=gres/gpu count reported lower [slurm@2026-01-01T10:00:00]
"""
NODES = drain.parse_nodes(SHOWN)


def test_nodes_are_read() -> None:
    assert list(NODES) == ["n1", "n2", "n3", "n4", "n5"]
    assert drain.facts(NODES["n1"]) == {
        "states": ["mixed"],
        "reason": "",
        "reason_by": "",
        "partitions": ["main", "debug"],
        "cpus": 4,
        "cpus_used": 1,
        "memory_mib": 4000,
        "gpus": 8,
        "gpus_used": 4,
    }
    assert (NODES["n2"].reason, NODES["n2"].reason_by) == ("new cable, ask [Eve]", "root")
    assert NODES["n3"].states == ("DOWN", "NOT_RESPONDING")
    assert [node.name for node in NODES.values() if node.ready] == ["n1"]
    assert [node.name for node in NODES.values() if node.working] == ["n1"]


def test_others_reasons_stay_unless_they_are_overruled() -> None:
    # A node that only does not answer is nobody's decision; what slurmctld itself drained is worth knowing.
    assert drain.to_drain(NODES.values(), "driver upgrade") == ["n1", "n3"]
    assert drain.to_drain(NODES.values(), "driver upgrade", force=True) == ["n1", "n2", "n3", "n5"]
    assert drain.kept(NODES.values(), "driver upgrade") == [
        "n2 is out for another reason: new cable, ask [Eve]",
        "n5 is out for another reason: gres/gpu count reported lower",
    ]


def test_only_our_own_are_resumed() -> None:
    assert drain.to_resume(NODES.values(), "driver upgrade") == ["n4"]
    assert drain.to_resume(NODES.values(), "driver", prefix=True) == ["n4"]
    assert drain.to_resume(NODES.values(), "driver upgrade", force=True) == ["n2", "n3", "n4", "n5"]


def test_an_older_reason_of_ours_is_replaced() -> None:
    assert drain.to_drain([NODES["n4"]], "driver: other", own="driver") == ["n4"]
    assert drain.to_drain([NODES["n4"]], "driver upgrade", own="driver") == []


def test_strangers_are_named() -> None:
    assert drain.unknown(["n1", "n9"], NODES) == "Slurm has no node n9; it has n1, n2, n3, n4, n5"
    assert drain.unknown(["n1"], NODES) == ""


def test_jobs_with_what_they_were_given() -> None:
    jobs = "7|alice|vision|main|RUNNING|None|n[1-2]\n8_1|bob|speech|main|PENDING|Resources|\n"
    tres = f"{'7':64}{'cpu=2,node=2,billing=2,gres/gpu=16':256}\n{'8_1':64}{'N/A':256}\n"
    first, second = answers.parse_jobs(jobs, tres)
    assert (first["id"], first["gpus"], first["nodes"], first["reason"]) == ("7", 16, "n[1-2]", "")
    assert (second["id"], second["gpus"], second["state"], second["reason"]) == ("8_1", 0, "pending", "Resources")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Slurmctld(primary) at ctl is UP\n", {"ctl": True}),
        ("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n", {"a": False, "b": True}),
        ("", {}),
    ],
)
def test_ping(text: str, found: dict[str, bool]) -> None:
    assert answers.parse_ping(text) == found


def test_partitions_are_summed_over_the_states_of_their_nodes() -> None:
    found = answers.parse_partitions("main|up|3|infinite\nmain|up|1|infinite\ndebug|down|1|30:00\n")
    assert found["main"] == {"state": "up", "nodes": 4, "max_time": "infinite"}
    assert found["debug"]["state"] == "down"
