# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs, and that in doubt something does."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.action.drift import digest
from ansible_collections.gpuops.cluster.plugins.module_utils import _drift, _node_program

ME = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}


def answers(table: dict[str, str]) -> _drift.Run:
    """Commands, by the words that they begin with."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        call = " ".join(argv)
        return next(((0, out, "") for start, out in table.items() if call.startswith(start)), (127, "", "no such"))

    return run


def wanted(path: Path, **more: Any) -> dict[str, Any]:
    return {"path": str(path), "state": "file", **ME, **more}


def test_packages_that_dpkg_has_not_installed_completely() -> None:
    run = answers({"dpkg-query": "installed a\nhalf-configured b\n"})
    assert _drift.packages(run, ["a", "b", "c"]) == ["b", "c"]
    assert _drift.packages(answers({}), ["a"]) == ["a"]
    assert _drift.packages(answers({}), []) == []


def test_a_file_differs_by_contents_mode_and_owner(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("größe\n", encoding="utf-8")
    file.chmod(0o644)
    entry = digest(wanted(file, content="größe\n"), str)
    assert entry["sha256"] == hashlib.sha256("größe\n".encode()).hexdigest() and "content" not in entry
    assert _drift.as_wanted(entry)
    assert not _drift.as_wanted({**entry, "mode": "0600"})
    assert not _drift.as_wanted({**entry, "group": "no-such-group"})
    assert not _drift.as_wanted({**entry, "state": "directory"})
    assert not _drift.as_wanted(digest(wanted(file, content=""), str))
    file.unlink()
    assert not _drift.as_wanted(entry)


def test_a_directory_in_the_place_of_a_file_differs(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert _drift.as_wanted(wanted(tmp_path, state="directory"))
    assert not _drift.as_wanted(wanted(tmp_path, sha256="", mode="0755"))


def test_root_owns_what_nobody_else_is_named_for(tmp_path: Path) -> None:
    status = os.stat_result((0o100644, 0, 0, 1, 1, 1, 0, 0, 0, 0))
    assert not _drift.owned({"state": "file"}, status)
    assert _drift.owned({"state": "file", "line": "A=1"}, status)
    assert _drift.owned({"state": "file"}, os.stat_result((0o100644, 0, 0, 1, 0, 0, 0, 0, 0, 0)))


@pytest.mark.parametrize(
    ("text", "same"),
    [("# ARGS=\nARGS=1\n", True), ("ARGS=1\nARGS=2\n", False), ("ARGS=2\nARGS=1", True), ("# ARGS=1\n", False)],
)
def test_the_last_line_counts(tmp_path: Path, text: str, same: bool) -> None:
    file = tmp_path / "default"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o644)
    assert _drift.as_wanted(wanted(file, line="ARGS=1")) is same


def test_digests_of_files_and_programs_are_those_of_what_is_installed(tmp_path: Path) -> None:
    source = tmp_path / "program.py"
    source.write_text("print('x')\n", encoding="utf-8")
    there = {"path": "/x", "state": "file"}
    assert digest({**there, "src": "p"}, lambda _name: str(source))["sha256"] == (
        hashlib.sha256(source.read_bytes()).hexdigest()
    )
    archive = _node_program.archive("print('x')\n", Path(_node_program.__file__).parent)
    assert digest({**there, "program": "p"}, lambda _name: str(source)) == (
        {**there, "sha256": hashlib.sha256(archive).hexdigest()}
    )
    assert digest({**there, "line": "A=1"}, str) == {**there, "line": "A=1"}


GOOD = "ActiveState=active\nNeedDaemonReload=no\n"
IDLE = "ActiveState=inactive\nNeedDaemonReload=no\n"
STALE = "ActiveState=active\nNeedDaemonReload=yes\n"


@pytest.mark.parametrize(
    ("shown", "enabled", "differing"),
    [
        ([GOOD, GOOD, IDLE], "enabled\nenabled\n", []),
        ([GOOD, IDLE, IDLE], "enabled\nenabled\n", ["b.timer"]),
        ([GOOD, GOOD, IDLE], "disabled\nenabled\n", ["a.service"]),
        ([GOOD, STALE, STALE], "enabled\nenabled\n", ["b.timer", "b.service"]),
        ([GOOD, GOOD, IDLE], "enabled\n", ["a.service", "b.timer", "b.service"]),
        ([], "", ["a.service", "b.timer", "b.service"]),
    ],
)
def test_units_are_enabled_active_and_loaded_as_they_are(shown: list[str], enabled: str, differing: list[str]) -> None:
    run = answers({"systemctl show": "\n".join(shown), "systemctl is-enabled": enabled})
    paths = ["/etc/systemd/system/b.service", "/etc/systemd/system/b.timer", "/etc/default/a"]
    assert _drift.units(run, ["a.service", "b.timer"], paths) == differing


def test_nothing_is_asked_of_systemd_where_there_are_no_units() -> None:
    assert _drift.units(answers({}), [], ["/etc/default/a"]) == []


def test_whatever_differs_is_told() -> None:
    nothing: dict[str, Any] = {"packages": [], "files": [], "units": []}
    assert _drift.look(answers({}), nothing) == {"packages": [], "paths": [], "units": [], "differs": False}
    assert _drift.look(answers({}), {**nothing, "packages": ["a"]})["differs"] is True
