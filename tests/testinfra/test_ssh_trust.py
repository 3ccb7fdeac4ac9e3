"""Trust as users see it: real logins between the nodes, with verified host keys and without a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Host = Any
NODES = ("ctl", "n1", "n2")
PAIRS = [(source, target) for source in NODES for target in NODES if source != target]
STRICT = "-o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10"


def ssh(host: Host, user: str, target: str, command: str = "id -un; hostname", options: str = "") -> Any:
    """ssh from a host as a user, with the system's known hosts alone. A failure gives 1 (255 is testinfra's own)."""
    return host.run("runuser -u %s -- ssh " + STRICT + f" {options} %s %s || exit 1", user, target, command)


@pytest.mark.parametrize("user", ["root", "alice"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_node_reaches_every_other_by_name(
    connect: Callable[[str], Host], source: str, target: str, user: str
) -> None:
    done = ssh(connect(source), user, target)
    assert done.rc == 0, done.stderr
    assert done.stdout.split() == [user, target]


def test_an_address_is_as_good_as_a_name(n1: Host, n2: Host) -> None:
    address = n2.check_output("hostname -I").split()[0]
    done = ssh(n1, "alice", address)
    assert done.rc == 0, done.stderr


def test_a_certificate_is_good_for_its_own_user_alone(n1: Host) -> None:
    done = ssh(n1, "alice", "root@n2")
    assert done.rc == 1
    assert "Permission denied" in done.stderr


def test_a_user_who_is_not_listed_has_no_way_in(n1: Host) -> None:
    done = ssh(n1, "daemon", "n2")
    assert done.rc == 1
    assert "Permission denied" in done.stderr


def test_a_host_without_certificate_is_not_believed(n1: Host, n2: Host) -> None:
    n2.run("rm -f /run/stranger /run/stranger.pub; ssh-keygen -q -t ed25519 -N '' -f /run/stranger")
    started = n2.run("/usr/sbin/sshd -f /dev/null -h /run/stranger -p 2222 -o PidFile=/run/stranger.pid")
    assert started.rc == 0, started.stderr
    try:
        done = ssh(n1, "root", "n2", options="-p 2222")
    finally:
        n2.run("kill $(cat /run/stranger.pid)")
    assert done.rc == 1
    assert "Host key verification failed" in done.stderr


def test_a_certificate_names_its_host(n1: Host, n2: Host) -> None:
    """n2 under a name that is not in its certificate: refused, although the authority is known."""
    address = n2.check_output("hostname -I").split()[0]
    done = ssh(n1, "root", "impostor", options=f"-o HostName={address} -o HostKeyAlias=impostor")
    assert done.rc == 1
    assert "Host key verification failed" in done.stderr


@pytest.mark.parametrize("name", NODES)
def test_the_authority_does_not_leave_the_control_node(connect: Callable[[str], Host], name: str) -> None:
    host = connect(name)
    authority = host.check_output("cut -d' ' -f2 /etc/ssh/ssh_trust_ca.pub")
    keys = host.check_output("grep -rl -e 'PRIVATE KEY' /etc/ssh /root /home").split()
    assert keys
    for key in keys:
        assert authority not in host.run("ssh-keygen -y -P '' -f %s", key).stdout


@pytest.mark.parametrize("name", NODES)
def test_homes_are_left_alone(connect: Callable[[str], Host], name: str) -> None:
    host = connect(name)
    assert not host.file("/home/alice/.ssh/authorized_keys").exists
    assert host.file("/home/alice").mode == 0o775


@pytest.mark.parametrize("name", NODES)
def test_no_rollback_is_pending(connect: Callable[[str], Host], name: str) -> None:
    assert not connect(name).service("ssh-trust-rollback.timer").is_running
