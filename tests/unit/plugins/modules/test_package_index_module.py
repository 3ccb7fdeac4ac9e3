# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, with an apt that has no network."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.module_utils import _package_index as index
from ansible_collections.gpuops.cluster.plugins.modules import package_index

NO_NETWORK = "W: Failed to fetch http://mirror.example/dists/stable/InRelease  Could not resolve 'mirror.example'"
LOCK = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


@pytest.fixture
def places(tmp_path: Path) -> index.Places:
    """Lists of long ago."""
    (tmp_path / "sources.list").touch()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/mirror_dists_stable_main_binary-amd64_Packages.lz4").touch()
    os.utime(tmp_path / "lists", (1, 1))
    return index.Places(*(str(tmp_path / name) for name in ("lists", "stamp", "sources.list", "updates")))


def name_repository(places: index.Places, address: str, fetched_since: bool) -> None:
    Path(places.sources).write_text(f"deb [arch=amd64] {address} stable main\n", encoding="utf-8")
    when = time.time() + (5 if fetched_since else -5)
    os.utime(places.lists, (when, when))


def call(capsys: pytest.CaptureFixture[str], places: index.Places, words: str) -> dict[str, Any]:
    """What the module says where apt-get update says these words."""
    given = {"ANSIBLE_MODULE_ARGS": {"lock_timeout": 0}}
    warnings: list[str] = []
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps(given).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        mock.patch.object(index, "Places", return_value=places),
        mock.patch.object(time, "sleep"),
        mock.patch.object(time, "time", return_value=time.time() + 2 * 86400),  # whatever there is, is old
        # Where a test before imported Ansible's controller side, Ansible shows warnings instead of returning them.
        mock.patch.object(basic.AnsibleModule, "warn", side_effect=warnings.append),
        mock.patch.object(basic.AnsibleModule, "run_command", return_value=(100 * words.startswith("E:"), "", words)),
        pytest.raises(SystemExit),
    ):
        package_index.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**answer, "warnings": warnings}


@pytest.mark.parametrize("name", ["mirror_dists_stable_main_binary-amd64_Packages.lz4", "_srv_debs_._Packages"])
def test_lists_that_are_there_do_where_there_is_no_network(
    places: index.Places, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (there,) = Path(places.lists).iterdir()
    there.rename(Path(places.lists) / name)
    name_repository(places, "http://mirror.example/", fetched_since=True)
    answer = call(capsys, places, NO_NETWORK)
    assert (answer["changed"], answer["refreshed"]) == (False, False)
    assert "Could not resolve 'mirror.example' Those that are there are used." in str(answer["warnings"])


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://mirror.example/", NO_NETWORK),
        ("http://me:secret@mirror.example", NO_NETWORK),
        ("file:///srv/doca", "E: The repository 'file:/srv/doca  Release' does not have a Release file."),
    ],
)
def test_trouble_with_a_new_repository_is_an_error_each_time(
    places: index.Places, capsys: pytest.CaptureFixture[str], address: str, words: str
) -> None:
    name_repository(places, address, fetched_since=False)
    for _time in range(2):
        answer = call(capsys, places, words)
        assert answer["failed"]
        assert words in answer["msg"]


def test_trouble_with_another_one_is_not(places: index.Places, capsys: pytest.CaptureFixture[str]) -> None:
    name_repository(places, "file:///srv/doca", fetched_since=False)
    answer = call(capsys, places, NO_NETWORK)
    assert not answer.get("failed")
    assert "Could not resolve" in answer["warnings"][0]


@pytest.mark.parametrize(
    "words",
    [
        "W: GPG error: http://mirror.example stable InRelease: the public key is not available: NO_PUBKEY 0E98",
        "W: Failed to fetch http://mirror.example/InRelease  The following signatures were invalid: EXPKEYSIG 0E98",
    ],
)
def test_a_wrong_signature_is_an_error_although_there_are_lists(
    places: index.Places, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert call(capsys, places, f"{words}\nW: Failed to fetch")["failed"]


def test_they_are_fetched_where_there_is_one(places: index.Places, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, places, "")
    assert answer["refreshed"]
    assert os.stat(places.lists).st_mtime > 1


@pytest.mark.parametrize("words", [NO_NETWORK, ""])
def test_none_at_all_are_an_error(places: index.Places, capsys: pytest.CaptureFixture[str], words: str) -> None:
    for path in Path(places.lists).iterdir():
        path.unlink()
    answer = call(capsys, places, words)
    assert answer["failed"]
    assert (words or "brought no package lists") in answer["msg"]


def test_a_lock_that_stays_is_an_error(places: index.Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert "held by process 7" in call(capsys, places, f"Failed to fetch\n{LOCK}")["msg"]
