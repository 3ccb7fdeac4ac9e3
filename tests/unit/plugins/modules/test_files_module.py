# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it."""

from __future__ import annotations

import grp
import json
import os
import pwd
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.modules import files

ME = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}


def call(capsys: pytest.CaptureFixture[str], *wanted: dict[str, Any], check: bool = False) -> dict[str, Any]:
    given = {"files": list(wanted), **ME, "_ansible_check_mode": check}
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        pytest.raises(SystemExit),
    ):
        files.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_all_of_a_list_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, program, plain = tmp_path / "a/b", tmp_path / "a/b/run", tmp_path / "plain.conf"
    wanted: list[dict[str, Any]] = [
        {"path": str(folder), "state": "directory"},
        {"path": str(program), "content": "#!/bin/sh\n", "mode": "0755"},
        {"path": str(plain), "content": "größe = 1\n"},
    ]
    first = call(capsys, *wanted)
    assert first["changed_paths"] == [str(folder), str(program), str(plain)]
    assert plain.read_text(encoding="utf-8") == "größe = 1\n"
    assert (mode(folder), mode(program), mode(plain)) == (0o755, 0o755, 0o644)
    before = plain.stat().st_mtime_ns
    again = call(capsys, *wanted)
    assert again["changed"] is False and again["changed_paths"] == [] and plain.stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "plain.conf", "run"]


def test_root_s_umask_keeps_nobody_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, plain = tmp_path / "a/b", tmp_path / "a/b/plain"
    before = os.umask(0o077)
    try:
        call(capsys, {"path": str(folder), "state": "directory"}, {"path": str(plain), "content": "x"})
    finally:
        os.umask(before)
    assert (mode(folder.parent), mode(folder), mode(plain)) == (0o755, 0o755, 0o644)


def test_only_what_differs_is_changed_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    wanted = [{"path": str(path), "content": "new\n"} for path in (one, two, three)]
    call(capsys, *wanted)
    one.write_text("old\n", encoding="utf-8")
    two.chmod(0o600)
    answer = call(capsys, *wanted)
    assert answer["changed_paths"] == [str(one), str(two)]
    assert [(diff["before"], diff["after"]) for diff in answer["diff"]] == [
        ("old\n", "new\n"),
        ({"mode": "0600"}, {"mode": "0644"}),
    ]
    assert one.read_text(encoding="utf-8") == "new\n" and mode(two) == 0o644


def test_check_mode_says_all_of_it_and_touches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "old"
    old.write_text("x", encoding="utf-8")
    wanted: list[dict[str, Any]] = [
        {"path": str(tmp_path / "new"), "state": "directory"},
        {"path": str(tmp_path / "new/file"), "content": "x"},
        {"path": str(old), "state": "absent"},
    ]
    said = call(capsys, *wanted, check=True)["changed_paths"]
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert call(capsys, *wanted)["changed_paths"] == said
    assert call(capsys, *wanted, check=True)["changed"] is False


def test_what_is_gone_stays_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link, folder = tmp_path / "link", tmp_path / "folder"
    link.symlink_to("nowhere")
    folder.mkdir()
    wanted = [{"path": str(path), "state": "absent"} for path in (link, folder)]
    assert call(capsys, *wanted)["changed_paths"] == [str(link), str(folder)]
    assert call(capsys, *wanted)["changed"] is False


@pytest.mark.parametrize(
    ("state", "why"), [("file", "Is a directory"), ("absent", "Directory not empty"), ("directory", "")]
)
def test_a_directory_that_holds_something_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, why: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "precious").write_text("x", encoding="utf-8")
    answer = call(capsys, {"path": str(folder), "state": state})
    assert answer.get("msg", "") == (f"{folder}: {why}" if why else "")
    assert (folder / "precious").exists()


def test_failure_names_the_path_and_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good", tmp_path / "no/bad"
    answer = call(capsys, {"path": str(good), "content": "x"}, {"path": str(bad), "content": "x"})
    assert answer["failed"] and answer["changed"]
    assert answer["msg"] == f"{bad}: No such file or directory; before it was changed: {good}"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".ansible_files_")]
