"""A cluster of 32 nodes: what one run costs the others, who is locked out, and which link differs. In this order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Connect = Callable[[str], Any]
PROJECT = Path(__file__).parents[2]
OLD = ["ctl", *(f"n{number}" for number in range(1, 32))]
NEW = "n32"


def ansible(program: str, *words: str) -> str:
    """Runs a program of Ansible on the lab, and returns what it says, whatever its result."""
    command = [str(Path(sys.executable).with_name(program)), "-i", "inventories/lab", *words]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


def play(*words: str) -> tuple[dict[str, int], str]:
    """The scenario's converge.yml. Returns the changes of each host (-1: failed), and all words in one line."""
    said = ansible("ansible-playbook", "molecule/fleet/converge.yml", *words)
    recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=0\s+failed=(\d+)", said, re.MULTILINE)
    changes = {host: int(changed) if failed == "0" else -1 for host, changed, failed in recap}
    return changes, " ".join(said.split())


def on_all(hosts: list[str], command: str) -> dict[str, str]:
    """What a shell command prints on many hosts, which are asked side by side."""
    said = ansible("ansible", ",".join(hosts), "-f", "20", "-m", "ansible.builtin.raw", "-a", command)
    parts = re.split(r"^(\S+) \| \w+.*>>$", said, flags=re.MULTILINE)[1:]
    answers = dict(zip(parts[::2], parts[1::2], strict=True))
    assert sorted(answers) == sorted(hosts), said
    return answers


def files(hosts: list[str]) -> dict[str, str]:
    """Every file under /etc, /usr/local and root's home with the time of its last change."""
    # Units that the lab masks are the machine's /dev/null, which other labs touch.
    own = "-xdev -type f ! -name e2scrub_reap.service ! -name systemd-udev-trigger.service"
    found = on_all(hosts, rf"find /etc /usr/local /root/.ssh {own} -printf '%p %C@\n' | sort")
    assert all("/etc/ssh/ssh_trust" in text for text in found.values())
    return found


def reaches(hosts: list[str], target: str) -> dict[str, str]:
    """The name with which a host answers to others, without a prompt and with its key verified.

    All ask at once, and sshd turns some of so many away before they have logged in (MaxStartups).
    """
    options = "-o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null"
    asked = f"timeout 300 sh -c 'until ssh -n {options} {target} hostname 2>/dev/null; do sleep 1; done' || echo nobody"
    return {host: answer.split()[0] for host, answer in on_all(hosts, asked).items()}


def test_a_second_run_changes_nothing_anywhere() -> None:
    changes, said = play()
    assert changes == dict.fromkeys(OLD, 0), said


def test_one_more_node_touches_no_file_of_the_others() -> None:
    before = files(OLD)
    changes, said = play("--limit", NEW, "-e", "fleet_hosts=all")
    assert list(changes) == [NEW], said
    assert changes[NEW] > 0, said
    assert files(OLD) == before
    assert reaches(OLD, NEW) == dict.fromkeys(OLD, NEW)
    assert {reaches([NEW], host)[NEW] for host in ("n1", "n31")} == {"n1", "n31"}


@pytest.fixture
def locked_out(connect: Connect) -> Iterator[Any]:
    """n5 with a list of users that nobody tried yet, and with a reload of sshd to come."""
    host = connect("n5")
    host.check_output("cp -p /etc/ssh/sshd_config /run/ && echo 'AllowUsers bob' >/run/first")
    host.check_output("cat /run/first /run/sshd_config >/etc/ssh/sshd_config && rm /etc/ssh/ssh_trust_applied")
    yield host
    host.check_output("cp -p /run/sshd_config /etc/ssh/")


def test_who_would_be_locked_out_is_refused_and_nobody_else_is_touched(locked_out: Any) -> None:
    before = files(OLD)
    changes, said = play()
    assert "n5: sshd does not let root in from" in said
    assert "AllowUsers bob (in /etc/ssh/sshd_config)" in said
    assert changes == {**dict.fromkeys(OLD, 0), "n5": -1}
    assert files(OLD) == before
    assert locked_out.check_output("hostname") == "n5"


def test_a_smaller_mtu_of_one_node_is_found_by_name(connect: Connect) -> None:
    connect("n7").check_output("ip link set eth0 mtu 1400")
    try:
        changes, said = play("-e", "fleet_hosts=gpu_nodes")
    finally:
        connect("n7").check_output("ip link set eth0 mtu 1500")
    assert [host for host, count in changes.items() if count < 0] == ["n6"], said
    assert "n6: packets of 1500 bytes do not pass from eth0 (MTU 1500) to n7 " in said
    assert "on eth0 (MTU 1400), small ones do" in said
