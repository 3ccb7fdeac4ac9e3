# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.modules import run_lock

ALICE = {
    **{"user": "alice", "control": "admin1", "machine": "m1", "boot": "b1", "pid": 1234, "start": "99"},
    **{"begin": 1000.0, "playbook": "site.yml"},
}
BOB = {**ALICE, "user": "bob", "pid": 4321}


def call(capsys: pytest.CaptureFixture[str], path: Path, check: bool = False, **options: Any) -> dict[str, Any]:
    given = {"path": str(path), **options, "_ansible_check_mode": check}
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        pytest.raises(SystemExit),
    ):
        run_lock.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_second_hears_of_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    first = call(capsys, path, run=ALICE)
    assert first["changed"] is False and first["holder"] is None
    second = call(capsys, path, run=BOB, hours=1)
    assert second["changed"] is False and second["holder"]["user"] == "alice" and second["holder"]["hours"] == 4
    assert call(capsys, path, run=BOB, gone="m1/b1/1234/99")["holder"] is None
    call(capsys, path, run=BOB, state="absent")
    assert not path.exists()


def test_check_mode_asks_and_takes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    assert call(capsys, path, check=True, run=ALICE)["holder"] is None
    assert not list(tmp_path.iterdir())
    call(capsys, path, run=ALICE)
    assert call(capsys, path, check=True, run=BOB)["holder"]["user"] == "alice"
    call(capsys, path, check=True, run=ALICE, state="absent")
    assert path.exists()


def test_failures_say_what_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = call(capsys, tmp_path / "no/run.json", run=ALICE)
    assert nowhere["failed"] and "cannot be written: No such file or directory" in nowhere["msg"]
    assert call(capsys, tmp_path / "run.json", run={"user": "alice"})["failed"]
