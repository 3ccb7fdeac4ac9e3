"""sacctmgr is told what differs, and nothing when nothing does."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting

QOS = "normal|0|||\nhigh|100|gres/gpu=4|7-00:00:00|normal\n"
ASSOC = """root|||1||normal
root||root|1||normal
vision|root||3||high,normal
vision||alice|1||high,normal
speech|vision||1|cpu=9,gres/gpu=8|normal
"""
WANTED_QOS = [{"name": "high", "priority": 100, "max_gpus_per_user": 4, "max_time": "7-0", "preempts": ["normal"]}]
WANTED: list[dict[str, Any]] = [
    {"name": "speech", "parent": "vision", "max_gpus": 8},
    {"name": "vision", "fairshare": 3, "users": ["alice"], "qos": ["normal", "high"]},
]


TIMES = {"90": 90, "1:30:00": 90, "90:00": 90, "7-0": 10080, "7-00:00:00": 10080, "1-12": 2160, "1-12:30": 2190}


@pytest.mark.parametrize(("text", "count"), [*TIMES.items(), ("", None), ("UNLIMITED", None)])
def test_times(text: str, count: Optional[int]) -> None:
    assert accounting.minutes(text) == count


def test_nothing_to_say() -> None:
    assert accounting.plan_qos(accounting.read_qos(QOS), WANTED_QOS) == []
    assert accounting.plan_accounts(accounting.read_accounts(ASSOC), WANTED, "lab") == []


def test_from_nothing_parents_come_first() -> None:
    now = accounting.read_accounts("root|||1||normal\nroot||root|1||normal\n")
    assert [" ".join(command) for command in accounting.plan_accounts(now, WANTED, "lab")] == [
        "add account vision cluster=lab parent=root",
        "modify account where name=vision cluster=lab set fairshare=3 qos=normal,high",
        "add user alice account=vision cluster=lab",
        "add account speech cluster=lab parent=vision",
        "modify account where name=speech cluster=lab set GrpTRES=gres/gpu=8",
    ]


def test_qos_that_preempts_one_that_is_added_later() -> None:
    wanted: list[dict[str, Any]] = [{"name": "a", "preempts": ["b"]}, {"name": "b"}]
    assert accounting.plan_qos({}, wanted) == [
        ["add", "qos", "a"],
        ["add", "qos", "b"],
        ["modify", "qos", "a", "set", "Preempt=b"],
    ]


def test_only_the_difference_is_set() -> None:
    now = accounting.read_accounts(ASSOC)
    wanted = [{"name": "speech", "max_gpus": None, "fairshare": 2, "users": ["bob", "carol"]}]
    assert accounting.plan_accounts(now, wanted, "lab") == [
        ["modify", "account", "where", "name=speech", "cluster=lab", "set", "fairshare=2", "GrpTRES=gres/gpu=-1"],
        ["add", "user", "bob,carol", "account=speech", "cluster=lab"],
    ]


def test_nobody_is_removed() -> None:
    assert accounting.plan_accounts(accounting.read_accounts(ASSOC), [{"name": "vision", "users": []}], "lab") == []


def test_circles_are_refused() -> None:
    with pytest.raises(ValueError, match="a, b are each other's parents"):
        accounting.plan_accounts({}, [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "lab")
