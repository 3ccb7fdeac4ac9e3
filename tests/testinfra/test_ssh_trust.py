"""Trust as users see it: real logins between the nodes, with verified host keys and without a prompt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testinfra

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


def test_a_home_that_root_cannot_write_is_no_obstacle(n1: Host) -> None:
    assert n1.run("touch /home/alice/x").rc == 1


def test_authorities_of_others_are_left_alone(n2: Host) -> None:
    assert "@cert-authority *.site.example " in n2.file("/etc/ssh/ssh_known_hosts").content_string


@pytest.mark.parametrize("name", NODES)
def test_no_rollback_is_pending(connect: Callable[[str], Host], name: str) -> None:
    assert not connect(name).service("ssh-trust-rollback.timer").is_running


def test_ipv6_and_a_second_port(n1: Host) -> None:
    target = "fd00:77::12"
    done = ssh(n1, "alice", target, options="-p 2022")
    assert done.rc == 0, done.stderr
    assert done.stdout.split() == ["alice", "n2"]


def test_what_a_home_says_of_an_older_key_does_not_matter(n1: Host) -> None:
    """n2 as it was before it was installed anew: the certificate counts."""
    n1.check_output("rm -f /run/older /run/older.pub; ssh-keygen -q -t ed25519 -N '' -f /run/older")
    n1.check_output("sed 's/^/n2 /' /run/older.pub > /run/older.known; chmod 644 /run/older.known")
    done = ssh(n1, "alice", "n2", options="-o UserKnownHostsFile=/run/older.known")
    assert done.rc == 0, done.stderr


# --- what happens to a cluster later; the order of these tests matters, and they are the last of the scenario ---

PROJECT = Path(__file__).parents[2]
PASSPHRASE = "of this test alone"
ANY_KEY = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o ControlPath=none"


def authority() -> Path:
    return Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "ssh_trust_ca"


def play(*arguments: str, inventory: str = "inventories/lab") -> tuple[dict[str, int], str]:
    """The scenario's converge.yml again. Returns the changes of each host (-1: failed) and what was printed."""
    tool = str(Path(sys.executable).parent / "ansible-playbook")
    argv = [tool, "-i", inventory, "molecule/ssh_trust/converge.yml", *arguments]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=0\s+failed=(\d+)", done.stdout, re.MULTILINE)
    return {host: int(changed) if failed == "0" else -1 for host, changed, failed in recap}, done.stdout + done.stderr


def files(host: Host) -> str:
    """All of /etc/ssh with checksums and times of change."""
    found: str = host.check_output("find /etc/ssh -type f -printf '%p %C@\\n' -exec sha256sum {} + | sort")
    return found


def test_a_host_that_is_installed_anew_touches_no_other(ctl: Host, n1: Host) -> None:
    before = [files(host) for host in (ctl, n1)]
    n2 = testinfra.get_host("ssh://n2", ssh_config=n1.backend.ssh_config, ssh_extra_args=ANY_KEY)
    gone = "/etc/ssh/ssh_host_* /etc/ssh/ssh_trust_* /etc/ssh/ssh_known_hosts /etc/ssh/*.d/05-ssh-trust.conf"
    n2.check_output("mkdir /root/keys && cp -p /etc/ssh/ssh_host_* /root/keys")
    n2.check_output(f"rm {gone} && ssh-keygen -A && systemctl reload ssh")
    try:
        assert ssh(n1, "alice", "n2").rc == 1
        changed, said = play("--limit", "n2", "-e", json.dumps({"ansible_ssh_common_args": ANY_KEY}))
        assert list(changed) == ["n2"], said
        assert changed["n2"] > 0, said
        assert ssh(n1, "alice", "n2").rc == 0
        assert ssh(n2, "alice", "n1").rc == 0
    finally:
        n2.check_output("cp -p /root/keys/* /etc/ssh && systemctl reload ssh")
    assert [files(host) for host in (ctl, n1)] == before


def test_what_is_no_longer_right_is_signed_anew(n1: Host, n2: Host) -> None:
    """n2 has its first host key again since the test before; root's certificate expires, alice's comes to its end."""
    for user, days in (("root", "-80d:-1d"), ("alice", "-80d:+10d")):
        public = authority() / f"issued/n2/{user}.pub"
        argv = ["ssh-keygen", "-q", "-P", PASSPHRASE, "-s", str(authority() / "ca"), "-I", f"{user}@n2", "-n", user]
        subprocess.run([*argv, "-V", days, str(public)], check=True)
        old = (authority() / f"issued/n2/{user}-cert.pub").read_text().strip()
        n2.check_output(f"echo %s > /etc/ssh/ssh_trust_key_{user}-cert.pub", old)
    assert "Permission denied" in ssh(n2, "root", "n1").stderr
    assert ssh(n2, "alice", "n1").rc == 0
    changed, said = play("--limit", "n2")
    assert changed["n2"] > 0, said
    assert "n2 (made for another key)" in said
    assert "root@n2 (expired)" in said
    assert "alice@n2 (less than a third of its time left)" in said
    assert ssh(n2, "root", "n1").rc == 0


def test_a_private_key_that_is_gone_or_open_to_others_is_put_right(n2: Host) -> None:
    """Beside certificates that are still right."""
    n2.check_output("rm /etc/ssh/ssh_trust_key_root && chmod 644 /etc/ssh/ssh_trust_key_alice")
    changed, said = play("--limit", "n2")
    assert changed["n2"] > 0, said
    assert [ssh(n2, user, "n1").rc for user in ("root", "alice")] == [0, 0]
    assert play("--limit", "n2")[0] == {"n2": 0}


@pytest.mark.parametrize(
    "spoil",
    [
        "sed -i '/gpuops.cluster.ssh_trust/,/gpuops.cluster.ssh_trust/s/^@cert-authority [*]/@cert-authority x/' "
        "/etc/ssh/ssh_known_hosts",
        "chmod 600 /etc/ssh/ssh_trust_revoked.krl",
        "echo 'Compression yes' >>/etc/ssh/ssh_config.d/05-ssh-trust.conf",
    ],
)
def test_what_somebody_did_to_our_files_is_undone(n2: Host, spoil: str) -> None:
    show = "cd /etc/ssh && stat -c '%n %a %U' *known_hosts *.krl *.d/05-* && sha256sum *known_hosts *.krl *.d/05-*"
    before = n2.check_output(show)
    n2.check_output(spoil)
    assert n2.check_output(show) != before
    changed, said = play("--limit", "n2")
    assert changed == {"n2": 1}, said
    assert n2.check_output(show) == before


def test_a_host_certificate_that_has_expired_is_not_believed_until_the_next_run(n1: Host, n2: Host) -> None:
    issued = authority() / "issued/n2"
    listed = subprocess.check_output(["ssh-keygen", "-Lf", str(issued / "host-cert.pub")], text=True)
    names = ",".join(listed.partition("Principals:")[2].partition("Critical Options:")[0].split())
    argv = ["ssh-keygen", "-q", "-P", PASSPHRASE, "-s", str(authority() / "ca"), "-I", "n2", "-n", names, "-h"]
    subprocess.run([*argv, "-V", "-80d:-1d", str(issued / "host.pub")], check=True)
    expired = (issued / "host-cert.pub").read_text().strip()
    n2.check_output("echo %s > /etc/ssh/ssh_trust_host-cert.pub && systemctl reload ssh", expired)
    refused = ssh(n1, "alice", "n2")
    assert refused.rc == 1
    assert "expired" in refused.stderr
    changed, said = play("--limit", "n2")
    assert changed["n2"] > 0, said
    assert "n2 (expired)" in said
    assert ssh(n1, "alice", "n2").rc == 0


def test_a_user_who_is_taken_off_the_list_loses_the_key(n2: Host) -> None:
    changed, said = play("--limit", "n2", "-e", json.dumps({"ssh_trust_users": ["root"]}))
    assert changed["n2"] > 0, said
    assert not n2.file("/etc/ssh/ssh_trust_key_alice").exists
    assert ssh(n2, "alice", "n1").rc == 1


def test_who_would_be_locked_out_is_said_before_anything_changes(n2: Host) -> None:
    """A list of users that somebody wrote and did not try: our reload would bring it to life."""
    n2.check_output("cp -p /etc/ssh/sshd_config /run/ && rm /etc/ssh/ssh_trust_applied")
    n2.check_output("sed -i 's/^AllowUsers.*/AllowUsers bob/' /etc/ssh/sshd_config")
    try:
        before = files(n2)
        changed, said = play("--limit", "n2")
        after = files(n2)
    finally:
        n2.check_output("cp -p /run/sshd_config /etc/ssh/")
    assert changed == {"n2": -1}
    assert "n2: sshd does not let alice in from" in said
    assert "AllowUsers bob (in /etc/ssh/sshd_config)" in said
    assert "/etc/ssh/sshd_config was written after sshd last read it" in said
    assert after == before


def wait_for_login(config: str, name: str) -> None:
    """A new connection, tried until it works."""
    command = ["ssh", "-F", config, "-o", "BatchMode=yes", "-o", "ControlPath=none", "-o", "ConnectTimeout=10", name]
    deadline = time.monotonic() + 120
    while subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, f"{name} lets nobody in"


def test_a_node_that_does_not_let_us_in_again_goes_back_by_itself(n2: Host) -> None:
    """A reload that locks everybody out as long as our settings are there (by StrictModes)."""
    ours, unit = "/etc/ssh/sshd_config.d/05-ssh-trust.conf", "/run/systemd/system/ssh.service.d/hostile.conf"
    trick = f"/bin/sh -c 'if [ -e {ours} ]; then chmod 777 /root; else chmod 700 /root; fi'"
    lines = f"[Service]\nExecReload=\nExecReload={trick}\nExecReload=/bin/kill -HUP $MAINPID\n"
    n2.check_output(f"mkdir -p $(dirname {unit}) && printf %s > {unit} && systemctl daemon-reload", lines)
    n2.check_output("rm -f /etc/ssh/ssh_trust_applied")
    changed, said = play("--limit", "n2", "-e", "ssh_trust_rollback_seconds=10")
    wait_for_login(n2.backend.ssh_config, "n2")
    n2.check_output(f"rm {unit} && systemctl daemon-reload")
    assert changed.get("n2", -1) == -1, said
    assert n2.check_output("stat -c %a /root") == "700", "the way out was our roll-back"
    assert not n2.file(ours).exists
    n2.check_output(f"rm {ours}.rolled-back")


def test_plain_keys_do_it_as_well_and_no_secret_is_printed(connect: Callable[[str], Host]) -> None:
    changed, said = play("-vvv", "-e", json.dumps({"ssh_trust_mode": "keys"}))
    assert all(count > 0 for count in changed.values()), said
    hosts = {name: connect(name) for name in NODES}
    for name, host in hosts.items():
        assert host.run("ls /etc/ssh/ssh_trust_key_*-cert.pub").rc != 0
        assert (
            host.run("sshd -T -C user=a,host=b,addr=192.0.2.9,laddr=b,lport=22 | grep ^trusted").stdout.split()[1]
            == "none"
        )
        private = host.file("/etc/ssh/ssh_trust_key_alice").content_string.splitlines()
        assert private[1] not in said
        assert private[2] not in said
        assert host.run("journalctl --no-pager | grep -F -e %s -e %s", PASSPHRASE, private[2]).rc == 1
        for other in NODES:
            if other != name:
                assert ssh(host, "alice", other).stdout.split() == ["alice", other]
    assert PASSPHRASE not in said
    assert "root" in ssh(hosts["ctl"], "root", "n2").stdout
    assert ssh(hosts["n1"], "alice", "root@n2").rc == 1


def test_back_to_certificates(n1: Host, n2: Host) -> None:
    shared = n1.file("/etc/ssh/ssh_trust_key_alice.pub").content_string
    changed, said = play()
    assert all(count > 0 for count in changed.values()), said
    assert not n2.file("/etc/ssh/ssh_trust_authorized").exists
    assert n1.file("/etc/ssh/ssh_trust_key_alice.pub").content_string != shared
    assert ssh(n1, "alice", "n2").rc == 0


@pytest.fixture
def without_n1(tmp_path: Path) -> str:
    """The lab's inventory, n1 taken out."""
    listed = subprocess.run([PROJECT / "inventories/lab/hosts.sh"], capture_output=True, text=True, check=True).stdout
    inventory = json.loads(listed)
    del inventory["_meta"]["hostvars"]["n1"]
    for group in inventory.values():
        group["hosts"] = [host for host in group.get("hosts", []) if host != "n1"]
    script = tmp_path / "inventory.sh"
    script.write_text(f"#!/bin/sh\ncat <<'X'\n{json.dumps(inventory)}\nX\n")
    script.chmod(0o755)
    return str(script)


def test_a_revoked_user_has_no_way_in_and_is_not_certified_again(n1: Host, without_n1: str) -> None:
    revoked = ("-e", json.dumps({"ssh_trust_revoked": ["alice@n1"]}))
    changed, said = play(*revoked, inventory=without_n1)
    assert set(changed) == {"ctl", "n2"}, said
    assert "n1 has a certificate but is not in the inventory" in " ".join(said.split())
    assert "Permission denied" in ssh(n1, "alice", "n2").stderr
    assert ssh(n1, "root", "n2").rc == 0
    changed, said = play(*revoked)
    assert changed == {"ctl": 0, "n1": -1, "n2": 0}
    assert "n1: alice@n1 is in ssh_trust_revoked" in said


def test_a_host_that_left_the_inventory_is_not_believed_with_consent(ctl: Host, n1: Host, without_n1: str) -> None:
    changed, said = play("-e", json.dumps({"ssh_trust_revoke_removed": True}), inventory=without_n1)
    assert set(changed) == {"ctl", "n2"}, said
    assert "revoked" in ssh(ctl, "root", "n1").stderr
    assert "Permission denied" in ssh(n1, "root", "ctl").stderr


def test_another_authority_takes_over_with_consent(n1: Host, n2: Host) -> None:
    old = authority().joinpath("ca.pub").read_text(encoding="utf-8").split()[1]
    # Alice's key with what the old authority has signed, as a thief of its key would have it.
    n2.check_output(
        "cp -p /etc/ssh/ssh_trust_key_alice /run/old; cp -p /etc/ssh/ssh_trust_key_alice-cert.pub /run/old-cert.pub"
    )
    assert ssh(n2, "alice", "ctl", options="-F /dev/null -i /run/old").rc == 0
    authority().rename(authority().with_name("ssh_trust_ca.away"))
    changed, said = play()
    assert changed == dict.fromkeys(NODES, -1)
    assert "ssh_trust_ca_replace" in said
    changed, said = play("-e", json.dumps({"ssh_trust_ca_replace": True}))
    assert all(count > 0 for count in changed.values()), said
    for host, target in ((n1, "n2"), (n2, "n1"), (n2, "ctl")):
        assert ssh(host, "alice", target).stdout.split() == ["alice", target]
    assert "Permission denied" in ssh(n2, "alice", "ctl", options="-F /dev/null -i /run/old").stderr
    assert n2.run("grep -rF %s /etc/ssh", old).rc == 1, "nobody believes the old one"
    assert play()[0] == dict.fromkeys(NODES, 0)
