# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of runs: who gets a host, when a record counts, and what a control node knows of its own processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _run_lock

HERE = _run_lock.control_node()


def run(**different: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **HERE,
        "user": "alice",
        "pid": os.getpid(),
        "start": _run_lock.started(os.getpid()),
        "begin": time.time(),
        "playbook": "site.yml",
        "hours": 4.0,
    }
    return {**fields, **different}


OTHER = run(user="bob", control="admin2", machine="elsewhere", pid=7)


def test_a_host_is_one_run_s_until_it_is_given_back(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    assert _run_lock.take(path, OTHER) is None
    held = _run_lock.take(path, run())
    assert held is not None and held["user"] == "bob"
    _run_lock.release(path, run())
    assert _run_lock.read(path) is not None, "not ours to give back"
    _run_lock.release(path, OTHER)
    assert _run_lock.take(path, run()) is None


def test_the_same_run_may_take_it_again_and_began_when_it_did(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    _run_lock.take(path, run(begin=1000.0))
    assert _run_lock.take(path, run(begin=2000.0)) is None
    found = _run_lock.read(path)
    assert found is not None and found["begin"] == 1000.0


@pytest.mark.parametrize(("age", "counts"), [(3590, True), (3610, False), (-5, False)])
def test_a_record_counts_for_its_hours(tmp_path: Path, age: float, counts: bool) -> None:
    """Hours of the host's own, since it booted; what was taken later than now was taken before another boot."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**OTHER, "hours": 1, "taken": _run_lock.now() - age}))
    assert (_run_lock.take(str(path), run()) is not None) is counts


def test_force_takes_and_removes_what_others_have(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    _run_lock.take(path, OTHER)
    assert _run_lock.take(path, run(), force=True) is None
    assert _run_lock.take(path, OTHER) is not None
    _run_lock.release(path, OTHER, force=True)
    assert _run_lock.read(path) is None


def test_only_the_run_that_is_gone_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    _run_lock.take(path, OTHER)
    assert _run_lock.take(path, run(), gone=_run_lock.identity({**OTHER, "pid": 8})) is not None
    assert _run_lock.take(path, run(), gone=_run_lock.identity(OTHER)) is None


def test_who_only_asks_writes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    assert _run_lock.take(path, run(), write=False) is None
    _run_lock.release(path, run(), write=False)
    assert not list(tmp_path.iterdir())
    _run_lock.take(path, OTHER)
    assert _run_lock.take(path, run(), write=False) is not None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"user": "x"}', json.dumps({**OTHER, "taken": 0, "pid": -1}), "\x00\xff"]
)
def test_what_is_no_record_hinders_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("latin-1"))
    assert _run_lock.take(str(path), run()) is None


def test_users_of_the_host_read_the_record_and_cannot_hold_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    _run_lock.take(path, run())
    assert (tmp_path / "run.lock").stat().st_mode & 0o077 == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.json", "run.lock"]


def _try(path: str, number: int, winners: Any) -> None:
    if _run_lock.take(path, run(pid=number, machine="elsewhere")) is None:
        winners.put(number)


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    fork = multiprocessing.get_context("fork")
    winners = fork.Queue()
    tries = [fork.Process(target=_try, args=(path, number, winners)) for number in range(1, 17)]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    winner = winners.get(timeout=10)
    assert winners.empty()
    found = _run_lock.read(path)
    assert found is not None and found["pid"] == winner


def test_a_process_runs_until_it_has_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        start = _run_lock.started(child.pid)
        record = run(pid=child.pid, start=start)
        assert not _run_lock.has_ended(record, HERE)
        assert _run_lock.has_ended({**record, "start": "1"}, HERE), "another process got the same number"
        assert _run_lock.has_ended({**record, "boot": "before"}, HERE)
        assert not _run_lock.has_ended({**record, "boot": "before", "machine": "elsewhere"}, HERE)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert _run_lock.has_ended(record, HERE), "nobody has waited for it yet"
    assert _run_lock.has_ended(record, HERE)


def test_a_process_that_may_not_be_seen_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with hidepid, where other users' processes have no directory in /proc."""

    def denied(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", denied)
    monkeypatch.setattr(_run_lock, "started", lambda pid: "")
    assert not _run_lock.has_ended(run(pid=4711, start="1"), HERE)


def test_without_proc_ps_says_when_a_process_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert str(time.localtime().tm_year) in _run_lock.started(os.getpid())
    with subprocess.Popen(["true"]) as child:
        pass
    assert _run_lock.started(child.pid) == ""


def test_the_sentence_says_who_and_what_to_do() -> None:
    begin = time.mktime((2025, 6, 2, 10, 31, 0, 0, 0, -1))
    record = _run_lock.parse({**run(control="admin1", pid=1234, begin=begin), "taken": 0})
    assert record is not None
    assert _run_lock.sentence(record, begin + 60) == (
        "alice on admin1 runs site.yml since 10:31 (process 1234); "
        "wait until it has ended, or if it is gone set site_lock_force: true"
    )
    assert "since 2025-06-02 10:31" in _run_lock.sentence(record, begin + 86400)
    assert "since ?" in _run_lock.sentence({**record, "begin": 1e30}, begin)


def test_a_hostile_record_prints_as_one_short_line() -> None:
    record = _run_lock.parse({**run(user="\x1b[2J\nfatal:" + "x" * 5000), "taken": "12"})
    assert record is not None
    said = _run_lock.sentence(record, 0)
    assert said.isprintable() and len(said) < 600
