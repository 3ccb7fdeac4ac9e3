# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real runs of ansible-playbook that meet on hosts; these are directories of this machine, with a record each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
LOCK = yaml.safe_load((ROOT / "playbooks/tasks/lock.yml").read_text(encoding="utf-8"))
RELEASE = {"name": "Give back", "gpuops.cluster.run_lock": {"state": "absent"}}
WAIT = {"name": "Work", "ansible.builtin.wait_for": {"path": "{{ stop }}", "sleep": 1, "timeout": 120}}
ELSEWHERE = {
    **{"user": "alice", "control": "admin1", "machine": "elsewhere", "boot": "b", "pid": 1234, "start": "99"},
    **{"begin": 1000.0, "playbook": "site.yml", "hours": 4, "taken": 1.0},
}


def start(folder: Path, *words: str, **variables: Any) -> subprocess.Popen[str]:
    """The tasks of playbooks/tasks/lock.yml, work that lasts until the file `stop` is there, and the end."""
    tasks = json.loads(json.dumps([*LOCK, WAIT, RELEASE]))
    for task in tasks:
        if "gpuops.cluster.run_lock" in task:
            task["gpuops.cluster.run_lock"]["path"] = str(folder) + "/{{ inventory_hostname }}.json"
    book = {"hosts": "all", "gather_facts": False, "any_errors_fatal": True, "tasks": tasks}
    (folder / "book.yml").write_text(json.dumps([book]), encoding="utf-8")
    given = {"stop": str(folder / "stop"), "ansible_python_interpreter": sys.executable, **variables}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "a,b", "-c", "local", *words]
    return subprocess.Popen(
        [*command, "-e", json.dumps(given), str(folder / "book.yml")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    said = process.communicate(timeout=180)[0]
    return process.returncode, said


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.1)


def record(folder: Path, host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{host}.json").read_text(encoding="utf-8"))
    return found


def test_a_second_run_is_refused_and_one_that_was_killed_hinders_nobody(tmp_path: Path) -> None:
    first = start(tmp_path)
    until(lambda: (tmp_path / "a.json").exists() and (tmp_path / "b.json").exists())
    assert record(tmp_path, "a")["pid"] == first.pid, "the process that is to be looked for"
    assert record(tmp_path, "a")["playbook"] == "book.yml"
    code, said = end(start(tmp_path))
    assert code != 0 and f"(process {first.pid}); wait until it has ended" in said, said
    assert "a, b: " in said and "runs book.yml since" in said and "changed=0" in said, said
    code, said = end(start(tmp_path, "--check"))
    assert code != 0 and f"(process {first.pid})" in said, said

    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert record(tmp_path, "a")["pid"] == first.pid
    (tmp_path / "stop").touch()
    code, said = end(start(tmp_path))
    assert code == 0 and "changed=0" in said, said
    assert not list(tmp_path.glob("*.json"))


def test_hosts_that_were_just_taken_are_given_back(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    held = {**ELSEWHERE, "taken": time.clock_gettime(time.CLOCK_BOOTTIME)}
    (tmp_path / "b.json").write_text(json.dumps(held))
    code, said = end(start(tmp_path))
    assert code != 0 and "b: alice on admin1 runs site.yml since 1970" in said and "Work" not in said, said
    assert not (tmp_path / "a.json").exists() and record(tmp_path, "b") == held

    code, said = end(start(tmp_path, "--limit", "a"))
    assert code == 0, said
    code, said = end(start(tmp_path, site_lock_force="true"))
    assert code == 0 and not (tmp_path / "b.json").exists(), said


def test_a_host_that_does_not_answer_is_no_matter_of_locks(tmp_path: Path) -> None:
    """The task after the lock meets it, as without one."""
    (tmp_path / "stop").touch()
    dead = "b ansible_host=127.0.0.1 ansible_port=9 ansible_connection=ssh\n"
    (tmp_path / "hosts").write_text(f"a ansible_connection=local\n{dead}")
    code, said = end(start(tmp_path, "-i", str(tmp_path / "hosts")))
    before, _task, after = said.partition("TASK [Work]")
    assert code != 0 and "UNREACHABLE" in after and "UNREACHABLE" not in before and "Refuse" not in before, said
