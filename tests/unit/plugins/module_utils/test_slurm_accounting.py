"""sacctmgr is told what differs, and nothing when nothing does."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_accounting as accounting

QOS = "normal|0|||||||\nhigh|100|||gres/gpu=4||7-00:00:00|normal|DenyOnLimit\n"
ASSOC = """root|||1|||normal|
root||root|1|||normal|
vision|root||3|||high,normal|
vision||alice|1|||high,normal|high
speech|vision||1|cpu=9,gres/gpu=8|20|normal|
"""
USERS = "root|root|Administrator\nalice|vision|None\n"
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
    now = accounting.read_accounts("root|||1|||normal|\nroot||root|1|||normal|\n")
    assert [" ".join(command) for command in accounting.plan_accounts(now, WANTED, "lab")] == [
        "add account vision cluster=lab parent=root",
        "modify account where name=vision cluster=lab set fairshare=3 qos=high,normal",
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


def test_numbers_and_words_are_compared_as_slurm_writes_them() -> None:
    now = accounting.read_qos(QOS)
    same: dict[str, Any] = {"name": "HIGH", "flags": ["denyonlimit"], "max_gpus": -1, "max_jobs_per_user": None}
    assert accounting.plan_qos(now, [same]) == []
    assert accounting.plan_qos(now, [{"name": "high", "max_gpus_per_user": -1, "max_time": "-1", "preempts": []}]) == [
        ["modify", "qos", "high", "set", "MaxTRESPerUser=gres/gpu=-1", "MaxWall=-1", "Preempt="]
    ]


def test_a_qos_is_removed_once() -> None:
    now = accounting.read_qos(QOS)
    assert accounting.remove_qos(now, "High") == [["delete", "qos", "where", "name=high"]]
    assert accounting.remove_qos(now, "low") == []


def test_an_account_with_users_is_removed_only_on_purpose() -> None:
    now = accounting.read_accounts(ASSOC)
    with pytest.raises(ValueError, match="account vision is not empty: account speech, user alice"):
        accounting.remove_account(now, "vision", "lab", recursive=False)
    command = ["delete", "account", "where", "name=vision", "cluster=lab"]
    assert accounting.remove_account(now, "Vision", "lab", recursive=True) == [command]
    assert accounting.remove_account(now, "gone", "lab", recursive=False) == []


def plan_user(**wanted: Any) -> list[str]:
    users, accounts = accounting.read_users(USERS), accounting.read_accounts(ASSOC)
    return [" ".join(command) for command in accounting.plan_user(users, accounts, wanted, "lab")]


def test_a_user_as_wanted_is_left_alone() -> None:
    known = {"fairshare": "1", "qos": ["normal", "high"], "default_qos": "high", "admin_level": "none"}
    assert plan_user(name="Alice", account="Vision", default=True, **known) == []


def test_a_second_account_becomes_the_default_only_when_wanted() -> None:
    added = ["add user alice account=speech cluster=lab"]
    assert plan_user(name="alice", account="speech", default=False) == added
    default = ["modify user where name=alice cluster=lab set DefaultAccount=speech"]
    assert plan_user(name="alice", account="speech", default=True) == added + default


def test_a_new_user_s_first_account_is_the_default_by_itself() -> None:
    wanted: dict[str, Any] = {"default": True, "max_gpus": 4, "admin_level": "operator"}
    assert plan_user(name="bob", account="speech", **wanted) == [
        "add user bob account=speech cluster=lab",
        "modify user where name=bob cluster=lab account=speech set GrpTRES=gres/gpu=4",
        "modify user where name=bob set AdminLevel=operator",
    ]


def test_a_user_of_an_account_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no account nlp in cluster lab; there are: root, vision, speech"):
        plan_user(name="alice", account="nlp")


def test_a_user_leaves_one_account_or_all() -> None:
    users, accounts = accounting.read_users(USERS), accounting.read_accounts(ASSOC)

    def leave(**wanted: Any) -> list[list[str]]:
        return accounting.remove_user(users, accounts, wanted, "lab")

    assert leave(name="alice", account="speech") == []
    assert leave(name="alice", account="vision") == [
        ["delete", "user", "where", "name=alice", "account=vision", "cluster=lab"]
    ]
    assert leave(name="alice") == [["delete", "user", "where", "name=alice", "cluster=lab"]]
    assert accounting.remove_user(users, accounts, {"name": "alice"}, "") == [["delete", "user", "where", "name=alice"]]
    assert leave(name="mallory") == []
