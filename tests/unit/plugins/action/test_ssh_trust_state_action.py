# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a host is asked again, and what it is refused with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.action.ssh_trust_state import ActionModule

QUESTION = {"name": "n1", "address": "10.0.0.1", "mode": "keys", "users": ["root"], "everyone": ["root"], "peer": ""}


def ask(answer: dict[str, Any], **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the task returns, and with what it asked the host."""
    action = ActionModule.__new__(ActionModule)
    action._task = SimpleNamespace(args={**QUESTION, **options})
    asked: list[dict[str, Any]] = []

    def execute(module_args: dict[str, Any], **_options: Any) -> dict[str, Any]:
        asked.append(module_args)
        return dict(answer)

    with (
        mock.patch.object(ActionBase, "run", return_value={}),
        mock.patch.object(action, "_execute_module", execute),
    ):
        return action.run(None, {}), asked


def test_the_same_question_is_asked_once() -> None:
    first, asked = ask({"problems": [], "host_key": "k", "warnings": ["w"], "changed": False})
    assert asked == [QUESTION]
    assert first["own"] == {"users": ["root"], "mode": "keys", "address": "10.0.0.1"}
    again, asked = ask({}, seen=first, refuse=[])
    assert asked == []
    assert again == {key: value for key, value in first.items() if key != "warnings"}


@pytest.mark.parametrize("other", [{"peer": "10.0.0.2"}, {"everyone": ["alice", "root"]}, {"shared": {"root": "k"}}])
def test_another_question_is_asked_anew(other: dict[str, Any]) -> None:
    first, _asked = ask({"problems": [], "host_key": "old"})
    again, asked = ask({"problems": [], "host_key": "new"}, seen=first, refuse=[], **other)
    assert asked == [{**QUESTION, **other}]
    assert again["host_key"] == "new" and again["question"] != first["question"]


def test_refuses_with_all_problems_if_it_is_told_to() -> None:
    first, _asked = ask({"problems": ["sshd is odd", "it is old"]})
    assert "failed" not in first, "a look refuses nothing"
    refused, _asked = ask({}, seen=first, refuse=["n1, n2 have the same ssh host key"])
    assert refused["failed"] is True
    assert refused["msg"] == "n1: sshd is odd\nn1: it is old\nn1, n2 have the same ssh host key"
    assert "failed" not in ask({"problems": []}, refuse=[])[0]


def test_a_look_that_failed_says_why() -> None:
    answer, _asked = ask({"failed": True, "msg": "no python"}, refuse=["another"])
    assert answer["failed"] is True and answer["msg"] == "no python"
