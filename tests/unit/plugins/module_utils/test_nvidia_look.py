# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_driver reads from a host, with programs that answer as told."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _command
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_look as look
from ansible_collections.gpuops.cluster.plugins.module_utils._package_index import Places


class Programs:
    """Stands for run_command: what was asked, and one answer to all."""

    def __init__(self, rc: int = 0, out: str = "", err: str = "") -> None:
        self.answer = (rc, out, err)
        self.asked: list[list[str]] = []

    def __call__(self, argv: list[str], **_options: Any) -> tuple[int, str, str]:
        self.asked.append(argv)
        return self.answer


def test_package_lists_are_fetched_only_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    places = Places(lists=str(tmp_path))
    fails, works = Programs(100, err="E: no network"), Programs()
    assert "apt-get update says: E: no network" in look.fetch_lists(fails, places)
    assert look.fetch_lists(works, places) == "" and works.asked == [["apt-get", "-q", "update"]]
    (tmp_path / "mirror_dists_bookworm_main_binary-amd64_Packages.lz4").touch()
    assert look.fetch_lists(works, places) == "" and len(works.asked) == 1


def test_apt_that_does_not_answer_is_no_apt_without_versions() -> None:
    assert look.madison(Programs(out="a | 1 | x Packages\n"), ["a"]) == (["a | 1 | x Packages"], "")
    assert look.madison(Programs(100, err="E: broken\n"), ["a"]) == ([], "apt-cache madison says: E: broken")


def test_files_are_known_by_mode_and_checksum(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x\n")
    file.chmod(0o600)
    tmp_path.chmod(0o755)
    assert look.file_state(str(file)) == "0600 " + hashlib.sha256(b"x\n").hexdigest()
    assert look.file_state(str(tmp_path)) == "0755 directory"
    assert look.file_state(str(tmp_path / "none")) == ""


def test_units_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"/lib/systemd/system/nvidia-persistenced.service", "/etc/systemd/system/gpuops-gpu-settings.service"}
    monkeypatch.setattr("os.path.exists", lambda path: path in there)
    systemctl = Programs(
        out="Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active\nUnitFileState=disabled\n\n"
        "Id=nvidia-fabricmanager.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n"
        "Id=gpuops-gpu-settings.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\n"
    )
    assert look.units(systemctl) == {
        "nvidia-persistenced": {"enabled": False, "active": True},
        "gpuops-gpu-settings": {"enabled": True, "active": False},
    }


def test_an_nvidia_smi_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"compute_mode": "default", "power_limit_w": 0.0, "ecc": "", "mig_layout": {}}
    monkeypatch.setattr(_command, "run", lambda _argv, _timeout: _command.Answer(failure="nvidia-smi took too long"))
    assert "nvidia-smi took too long" in look.gpu_settings(wanted)["wrong"][0]


def test_the_probe_is_a_shell_script_that_says_what_dpkg_has(tmp_path: Path) -> None:
    tool = tmp_path / "dpkg-query"
    tool.write_text('#!/bin/sh\nfor last; do :; done\necho "dpkg ii |$last|1.0-1"\n')
    tool.chmod(0o755)

    def run(argv: list[str], **options: Any) -> tuple[int, str, str]:
        assert options == {"expand_user_and_vars": False}, "its variables are the script's own"
        answer = _command.run(["env", f"PATH={tmp_path}:/usr/bin:/bin:/usr/sbin:/sbin", *argv], 60)
        return answer.rc or 0, answer.stdout.decode(), answer.stderr.decode()

    lines = look.probe(run, ["*nvidia*", "libcuda1*"])
    assert "dpkg ii |libcuda1*|1.0-1" in lines
    assert any(line.startswith("room /usr ") for line in lines)
