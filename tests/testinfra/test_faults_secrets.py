"""Secrets that are missing, and that none is told: a run's output, facts, files that others can read."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.testinfra.faults import GIVEN, HOSTS, Start, authority

pytest_plugins = ["tests.testinfra.faults"]
pytestmark = pytest.mark.usefixtures("nothing_is_lost")

Host = Any


def test_the_authority_s_key_is_missing(start: Start, heal: Start, n2: Host) -> None:
    """A host wants a certificate and there is nothing to sign it with: no other authority takes its place."""
    key, words = authority() / "ca", ("--limit", "n2")
    n2.check_output("rm $(sshd -T | awk '/^hostcertificate/ {print $2}')")
    run = start(*words, roles=("ssh_trust",))
    with run.held_at("ssh_trust : Authority | Let ssh on the control"):
        key.rename(key.with_name("elsewhere"))
    try:
        assert run.end() != 0, run.said
        assert str(key) in run.failures and run.recap["n2"][2] == 1, run.said
        n2.check_output("sshd -t")
        plain = start(*words, roles=("ssh_trust",), ssh_trust_mode="keys")
        assert plain.end() != 0 and str(key) in plain.failures and not key.exists(), plain.said
    finally:
        key.with_name("elsewhere").rename(key)
    heal(*words, roles=("ssh_trust",))


def test_a_munge_key_that_is_not_there_is_named_before_anything_changes(start: Start) -> None:
    missing = "{{ lookup('ansible.builtin.file', '/nowhere/munge.key') }}"
    run = start(roles=("slurm",), slurm_munge_key=missing, slurm_config_extra={"MessageTimeout": 27})
    assert run.end() != 0 and "/nowhere/munge.key" in run.said, run.said
    assert all(changed == 0 for changed, _u, _f in run.recap.values()), run.said


def spellings(secret: bytes) -> list[bytes]:
    """A secret as it may turn up in a text, without the ends that depend on what stands beside it."""
    middle = secret[3 : len(secret) // 3 * 3]
    return [
        secret,
        base64.b64encode(middle),
        secret.hex().encode(),
        json.dumps(secret.decode("latin-1")).encode()[1:-1],
    ]


def test_no_secret_is_told(start: Start, hosts: dict[str, Host], tmp_path: Path) -> None:
    """A run that gives out all of them, at its most talkative; then output, facts, files that others can read."""
    ctl, n2 = hosts["ctl"], hosts["n2"]
    munge = base64.b64decode(ctl.check_output("base64 -w0 /etc/munge/munge.key"))
    private = (authority() / "ca").read_bytes().splitlines()
    secrets = [munge, GIVEN["ssh_trust_ca_passphrase"].encode(), *private[1:-1]]
    n2.check_output("head -c 1024 /dev/urandom > /etc/munge/munge.key; systemctl restart munge")
    n2.check_output("rm -f /etc/ssh/ssh_trust_key_root* /etc/ssh/ssh_trust_applied")
    os.environ.update(ANSIBLE_CACHE_PLUGIN="jsonfile", ANSIBLE_CACHE_PLUGIN_CONNECTION=str(tmp_path / "facts"))
    try:
        key = base64.b64encode(munge).decode()
        run = start("-vvv", "--diff", roles=("ssh_trust", "slurm"), slurm_munge_key=key)
        assert run.end() == 0, run.said
    finally:
        del os.environ["ANSIBLE_CACHE_PLUGIN"], os.environ["ANSIBLE_CACHE_PLUGIN_CONNECTION"]
    assert run.recap["n2"][0] > 2, "it was given its keys"
    secrets += n2.file("/etc/ssh/ssh_trust_key_root").content.splitlines()[1:-1]
    said = run.log.read_bytes()
    facts = b"".join(path.read_bytes() for path in (tmp_path / "facts").iterdir())
    assert b"distribution" in facts
    spelt = [text for secret in secrets for text in spellings(secret)]
    for text in spelt:
        assert text not in said and text not in facts, text[:20]
    patterns = b"\n".join(text for text in spelt if b"\n" not in text)
    where = "find /etc /home /opt /root /run /srv /tmp /usr/local /var /dev/shm -xdev -type f -perm /o+r -print0"
    look = f"{where} | xargs -0 -r grep -laF -f /run/patterns; journalctl | grep -aF -f /run/patterns; rm /run/patterns"
    for name in hosts:
        sees = "grep -qaF -f /run/patterns /etc/ssh/ssh_trust_key_root || echo blind" if name == "n2" else "true"
        words = ["ssh", "-F", ctl.backend.ssh_config, name, f"umask 077; cat > /run/patterns; {sees}; {look}"]
        found = subprocess.run(words, input=patterns, capture_output=True, check=True)
        assert found.stdout == b"", f"{name}: {found.stdout.decode(errors='replace')}"


@pytest.mark.parametrize("name", HOSTS)
def test_secret_files_are_their_owner_s_alone(hosts: dict[str, Host], name: str) -> None:
    host = hosts[name]
    modes = {"/etc/munge/munge.key": ("munge", 0o400), "/etc/ssh/ssh_trust_key_root": ("root", 0o600)}
    modes |= {"/etc/ssh/sshd_config.d/05-ssh-trust.conf": ("root", 0o600), "/etc/munge": ("munge", 0o700)}
    if name == "ctl":
        modes["/etc/slurm/slurmdbd.conf"] = ("slurm", 0o600)
    for path, wanted in modes.items():
        assert (host.file(path).user, host.file(path).mode) == wanted, path
    assert host.check_output("find /etc/munge /etc/slurm /etc/ssh -name '*.new' -o -name '*.rolled-back'") == ""


def test_the_authority_is_its_owner_s_alone() -> None:
    assert authority().stat().st_mode & 0o777 == 0o700
    assert (authority() / "ca").stat().st_mode & 0o777 == 0o600
    assert b"aes256" in base64.b64decode(b"".join((authority() / "ca").read_bytes().splitlines()[1:-1])), "encrypted"
