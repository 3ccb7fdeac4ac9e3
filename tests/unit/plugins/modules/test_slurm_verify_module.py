# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, with a Slurm whose jobs do not run."""

from __future__ import annotations

import json
import time
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.modules import slurm_verify

NOT_READY = "srun: error: Nodes n2 are still not ready"


def call(capsys: pytest.CaptureFixture[str], before: str, after: str) -> dict[str, Any]:
    """What the module says where no job runs, and sinfo's lines are these before the first one and after it."""
    asked: list[str] = []

    def run_command(_module: basic.AnsibleModule, command: list[str], **_options: Any) -> tuple[int, str, str]:
        asked.append(command[0])
        if command[0] == "srun":
            return 1, "", NOT_READY
        return (
            0,
            "Slurmctld(primary) at ctl is UP" if command[0] == "scontrol" else after if "srun" in asked else before,
            "",
        )

    clock = iter(range(10000))
    given = {"ANSIBLE_MODULE_ARGS": {"nodes": {"n1": {}, "n2": {}}, "timeout": 30}}
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps(given).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        mock.patch.object(time, "sleep"),
        mock.patch.object(time, "monotonic", side_effect=lambda: next(clock)),
        mock.patch.object(basic.AnsibleModule, "run_command", run_command),
        pytest.raises(SystemExit),
    ):
        slurm_verify.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def states(n1: str, n2: str) -> str:
    return f"n1|{n1}|main*|Unknown|none\nn2|{n2}|main*|root|none\n"


@pytest.mark.parametrize("state", ["completing", "completing*"])
def test_a_node_that_a_job_does_not_leave_is_no_node_that_others_use(
    capsys: pytest.CaptureFixture[str], state: str
) -> None:
    answer = call(capsys, states("mixed", "idle"), states("mixed", state))
    assert answer["failed"]
    assert f"n2: srun failed: {NOT_READY}" in answer["msg"]


def test_a_node_that_the_prolog_drained_is_a_state_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, states("mixed", "idle"), states("mixed", "drained"))
    assert not answer.get("failed")
    assert answer["not_asked"] == ["n1 is mixed (none)", "n2 is drained (none)"]
