# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the sum over all ranks holds, when it fails, and when Slurm had no nodes for it."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.modules import torch_verify

ROOT = "/opt/gpuops/envs"
GOOD = {"ranks": 4, "sum_is_right": True, "torch": ["2.9.1+cu126"], "nccl": [f"{ROOT}/torch-1/lib/libnccl.so.2"]}


@pytest.mark.parametrize(
    ("said", "torch", "holds"),
    [
        ({}, "2.9.1+cu126", True),
        ({}, "2.9.1", True),
        ({}, "2.9.1+cu130", False),
        ({}, "2.9.0", False),
        ({"torch": ["2.9.0+cu126", "2.9.1+cu126"]}, "2.9.1", False),
        ({"torch": ["2.9.1", "2.9.1+cu126"]}, "2.9.1", True),
        ({"torch": []}, "2.9.1", False),
        ({"sum_is_right": False}, "2.9.1", False),
        ({"nccl": [f"{ROOT}/torch-1/lib/libnccl.so.2", "/usr/lib/libnccl.so.2"]}, "2.9.1", False),
        ({"nccl": []}, "2.9.1", True),
    ],
)
def test_sum_torch_and_nccl_are_as_they_should_be(said: dict[str, Any], torch: str, holds: bool) -> None:
    assert torch_verify.holds({**GOOD, **said}, torch, ROOT) is holds


def test_the_answer_is_found_among_other_lines() -> None:
    assert torch_verify.answer(f"a warning\n{json.dumps(GOOD)}\nmore\n") == GOOD
    for cut in ("", "nothing", '{"ranks": 4, "sum'):
        assert torch_verify.answer(cut) == torch_verify.NOTHING


def verify(capsys: pytest.CaptureFixture[str], script: str) -> dict[str, Any]:
    """The module as Ansible runs it, with a shell in the place of srun."""
    command = ["sh", "-c", script] if script else ["/nonexistent/srun"]
    given = {"command": command, "environment": "torch", "torch": "2.9.1", "root": ROOT, "host": "n1"}
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        pytest.raises(SystemExit),
    ):
        torch_verify.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_sum_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    said = verify(capsys, f"echo '{json.dumps(GOOD)}'")
    assert (said["changed"], said["busy"], said["said"]) == (False, "", GOOD)


def test_no_free_nodes_are_told_and_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    refused = "srun: error: Unable to allocate resources: Requested nodes are busy"
    assert verify(capsys, f"echo '{refused}' >&2; exit 1")["busy"] == refused


def test_a_failure_names_the_host_and_the_last_error(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = verify(capsys, "echo one; echo 'RuntimeError: no route' >&2; echo bye >&2; exit 3")
    assert wrong["failed"] is True
    assert wrong["msg"] == (
        "n1: the distributed run of environment torch (torch 2.9.1) did not hold: exit code 3, "
        "said {'sum_is_right': False, 'torch': [], 'nccl': []}, RuntimeError: no route"
    )
    assert "Error: " in verify(capsys, "")["msg"], "no srun"
    assert "exit code 0" in verify(capsys, "true")["msg"]
