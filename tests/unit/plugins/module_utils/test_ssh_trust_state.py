"""The node's half of ssh_trust: what it reads from sshd and from certificates that ssh-keygen made."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _ssh_certificate, _ssh_trust, _sshd, _sshd_login
from hypothesis import given
from hypothesis import strategies as st

DAY = 86400


def keygen(*argv: str) -> None:
    subprocess.run(["ssh-keygen", "-q", *argv], check=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module", params=[("ed25519", "256"), ("ecdsa", "384"), ("rsa", "2048")], ids=lambda p: p[0])
def signed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """A signing request, the authority's public key and the certificate, valid for 90 days."""
    folder = tmp_path_factory.mktemp("keys")
    kind, bits = request.param
    keygen("-t", "ed25519", "-N", "", "-f", str(folder / "ca"))
    keygen("-t", kind, "-b", bits, "-N", "", "-f", str(folder / "key"))
    words = ("-h", "-I", "n1", "-n", "n1,10.0.0.1", "-V", "-1h:+90d", "-z", "7")
    keygen("-s", str(folder / "ca"), *words, str(folder / "key.pub"))
    wish = {
        "type": "host",
        "identity": "n1",
        "principals": ["10.0.0.1", "n1"],
        "public_key": (folder / "key.pub").read_text(),
    }
    return wish, (folder / "ca.pub").read_text(), (folder / "key-cert.pub").read_text()


def test_a_right_certificate_stays(signed: tuple[dict[str, Any], str, str]) -> None:
    wish, authority, line = signed
    assert _ssh_certificate.wrong(wish, line, authority, time.time()) == ""


@pytest.mark.parametrize(
    ("change", "days", "reason"),
    [
        ({"principals": ["n1"]}, 0, "names or addresses changed"),
        ({"identity": "n2"}, 0, "made for something else"),
        ({"type": "user"}, 0, "made for something else"),
        ({}, 59, ""),
        ({}, 61, "less than a third of its time left"),
        ({}, 91, "expired"),
        ({}, -1, "not valid yet"),
        ({"public_key": ""}, 0, "no certificate"),
    ],
)
def test_a_certificate_that_is_no_longer_right_goes(
    signed: tuple[dict[str, Any], str, str], change: dict[str, Any], days: int, reason: str
) -> None:
    wish, authority, line = signed
    assert _ssh_certificate.wrong({**wish, **change}, line, authority, time.time() + days * DAY) == reason


def test_another_key_or_authority_is_seen(signed: tuple[dict[str, Any], str, str], tmp_path: Path) -> None:
    wish, authority, line = signed
    keygen("-t", "ed25519", "-N", "", "-f", str(tmp_path / "other"))
    other = (tmp_path / "other.pub").read_text()
    assert _ssh_certificate.wrong(wish, line, other, time.time()) == "signed by another authority"
    assert _ssh_certificate.wrong({**wish, "public_key": other}, line, authority, time.time()) == "made for another key"


@given(st.binary(max_size=300))
def test_no_damaged_certificate_is_an_error(data: bytes) -> None:
    assert (
        _ssh_certificate.parse_certificate(f"ssh-ed25519-cert-v01@openssh.com {base64.b64encode(data).decode()}")
        is None
    )
    assert _ssh_certificate.parse_certificate(data.decode("latin-1")) is None


def test_lasting_addresses_only() -> None:
    def link(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
        return {"ifname": name, "addr_info": list(entries)}

    links = [
        link("lo", {"local": "127.0.0.1", "scope": "host"}, {"local": "192.0.2.9", "scope": "global"}),
        link("eno1", {"local": "10.0.0.1", "scope": "global"}, {"local": "fe80::1", "scope": "link"}),
        link("ib0", {"local": "2001:DB8:0::1", "scope": "global"}),
        link("eno2", {"local": "2001:db8::2", "scope": "global", "temporary": True}),
        link("docker0", {"local": "172.17.0.1", "scope": "global"}),
        link("eno3"),
    ]
    assert _ssh_trust.addresses(links) == ["10.0.0.1", "2001:db8::1"]


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ("Include /etc/ssh/sshd_config.d/*.conf\nPort 22\n", True),
        ("  include=sshd_config.d/*.conf\n", True),
        ("Port 22\n", False),
        ("#Include /etc/ssh/sshd_config.d/*.conf\n", False),
        ("Match User git\nInclude /etc/ssh/sshd_config.d/*.conf\n", False),
        ("Include /etc/ssh/sshd_config.d/90-*.conf\n", False),
        ("", False),
    ],
)
def test_an_include_counts_only_before_match(config: str, read: bool) -> None:
    assert _sshd.includes(config, _sshd.DROPINS["sshd_config"]) is read


GOOD = """port 22
pubkeyauthentication yes
trustedusercakeys none
authorizedprincipalsfile none
authorizedprincipalscommand none
hostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,ssh-ed25519
pubkeyacceptedalgorithms ssh-ed25519-cert-v01@openssh.com,ssh-ed25519
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", []),
        ("trustedusercakeys none", f"trustedusercakeys {_sshd.CA_FILE}", []),
        ("trustedusercakeys none", "trustedusercakeys /etc/ssh/site.pub", ["TrustedUserCAKeys /etc/ssh/site.pub"]),
        ("port 22", "hostcertificate /etc/ssh/site-cert.pub", ["HostCertificate /etc/ssh/site-cert.pub"]),
        ("port 22", f"hostcertificate {_sshd.HOST_CERTIFICATE}", []),
        ("authorizedprincipalsfile none", "authorizedprincipalsfile .ssh/p", ["AuthorizedPrincipalsFile .ssh/p"]),
        (
            "hostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,ssh",
            "hostkeyalgorithms ssh",
            ["HostKeyAlgorithms", "leaves out ssh-ed25519-cert-v01@openssh.com"],
        ),
    ],
)
def test_settings_that_stand_in_the_way_are_refused(old: str, new: str, words: list[str]) -> None:
    found = _sshd.refusals(_sshd.settings(GOOD.replace(old, new, 1) if old else GOOD), "ssh-ed25519", certificates=True)
    assert bool(found) is bool(words)
    assert all(word in found[0] for word in words)


def test_what_is_revoked_is_not_certified_again() -> None:
    wanted = [
        {"name": "host", "type": "host", "identity": "n1", "public_key": "ssh-ed25519 AAAA"},
        {"name": "alice", "type": "user", "identity": "alice@n1", "public_key": "ssh-ed25519 BBBB"},
    ]
    request = {"mode": "certificates", "revoked": ["n2", "alice@*"], "revoked_keys": ["ssh-ed25519 AAAA"]}
    assert _ssh_trust.revocations(request, wanted) == [
        "the key of n1 is revoked; remove /etc/ssh/ssh_host_* to get another",
        "alice@n1 is in ssh_trust_revoked; take it off when it is installed anew",
    ]
    assert _ssh_trust.revocations({**request, "revoked": [], "revoked_keys": []}, wanted) == []


def test_plain_keys_do_not_mind_another_authority() -> None:
    text = GOOD.replace("trustedusercakeys none", "trustedusercakeys /etc/ssh/site.pub")
    assert _sshd.refusals(_sshd.settings(text), "ssh-ed25519", certificates=False) == []


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [
        ("10.0.0.0/24", True),
        ("10.0.1.0/24", False),
        ("10.0.0.*", True),
        ("10.9.*", False),
        ("10.0.0.?", True),
        ("*", True),
        ("*.example.org", None),
        ("login1", None),
        ("fd00::/64", False),
    ],
)
def test_where_a_login_comes_from(pattern: str, holds: bool | None) -> None:
    assert _sshd_login.from_there(pattern, "10.0.0.5") is holds
    assert _sshd_login.from_there(pattern, "unknown") is None or pattern == "*"


@pytest.mark.parametrize(
    ("user", "lines", "keyword"),
    [
        ("alice", "", ""),
        ("alice", "allowusers root\nallowusers bob@*", "AllowUsers"),
        ("alice", "allowusers root\nallowusers al*", ""),
        ("alice", "allowusers alice@10.1.*", "AllowUsers"),
        ("alice", "allowusers alice@login.example.org", ""),  # a name: only sshd can tell
        ("alice", "denyusers alice", "DenyUsers"),
        ("alice", "denyusers alice@192.0.2.0/24", ""),
        ("alice", "allowgroups wheel", "AllowGroups"),
        ("alice", "allowgroups gpu*", ""),
        ("alice", "denygroups gpuusers", "DenyGroups"),
        ("root", "permitrootlogin no", "PermitRootLogin"),
        ("root", "permitrootlogin forced-commands-only", "PermitRootLogin"),
        ("root", "permitrootlogin without-password", ""),
        ("alice", "permitrootlogin no", ""),
        ("alice", "pubkeyauthentication no", "PubkeyAuthentication"),
        ("alice", "authenticationmethods publickey,password", "AuthenticationMethods"),
        ("alice", "authenticationmethods publickey,password publickey", ""),
        ("alice", "authenticationmethods any", ""),
    ],
)
def test_who_is_shut_out(user: str, lines: str, keyword: str) -> None:
    assert _sshd_login.shut(user, ["gpuusers"], _sshd.settings(lines), "10.0.0.5")[0] == keyword


def test_a_match_block_may_not_hide_what_we_set() -> None:
    general = _sshd.settings("trustedusercakeys none\nauthorizedkeysfile .ssh/authorized_keys")
    hiding = _sshd.settings("trustedusercakeys /etc/ssh/git.pub\nauthorizedkeysfile /srv/git/keys")
    ours = _sshd.settings(f"trustedusercakeys {_sshd.CA_FILE}\nauthorizedkeysfile a {_sshd.AUTHORIZED}/%u")
    assert _sshd_login.hidden(hiding, general, certificates=True) == ("TrustedUserCAKeys", "/etc/ssh/git.pub")
    assert _sshd_login.hidden(hiding, general, certificates=False) == ("AuthorizedKeysFile", "/srv/git/keys")
    for have in (general, ours):
        assert _sshd_login.hidden(have, general, certificates=True) == ("", "")
        assert _sshd_login.hidden(have, general, certificates=False) == ("", "")


def test_a_configuration_without_our_drop_in(tmp_path: Path) -> None:
    for name in ("05-ours.conf", "50-theirs.conf", "10-first.conf"):
        (tmp_path / name).touch()
    config = f"Include {tmp_path}/*.conf\nInclude {tmp_path}/05-ours.conf\nPort 22\nMatch User git\n"
    config += f"  Include {tmp_path}/5*\n"
    assert _sshd.without(config, f"{tmp_path}/05-ours.conf").splitlines() == [
        f"Include {tmp_path}/10-first.conf",
        f"Include {tmp_path}/50-theirs.conf",
        "Port 22",
        "Match User git",
        f"Include {tmp_path}/50-theirs.conf",
    ]


BLOCK = "# BEGIN gpuops.cluster.ssh_trust\n{}# END gpuops.cluster.ssh_trust\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        (BLOCK.format("a\n"), "a\n"),
        ("before\n" + BLOCK.format("a\nb\n") + "after\n", "a\nb\n"),
        (BLOCK.format("")[:-1], ""),
        (BLOCK.format("a\n").replace("# END", "# end"), ""),
        (BLOCK.format("a\n").replace("# BEGIN", "# begin"), ""),
        ("# END gpuops.cluster.ssh_trust\n# BEGIN gpuops.cluster.ssh_trust\na\n", ""),
        (BLOCK.format("a\n").replace("ssh_trust", "other"), ""),
    ],
)
def test_our_part_of_a_file(text: str, found: str) -> None:
    assert _ssh_trust.block(text) == found


def test_another_text_mode_or_owner_is_another_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    assert _ssh_trust.fingerprint(str(path)) == ""
    path.write_bytes(b"\x00\xff")
    path.chmod(0o644)
    owner, mode, digest = _ssh_trust.fingerprint(str(path)).split()
    assert (owner, mode) == (f"{path.stat().st_uid}:{path.stat().st_gid}", "0644")
    assert digest == hashlib.sha256(b"\x00\xff").hexdigest()
    path.chmod(0o4600)
    assert _ssh_trust.fingerprint(str(path)) == f"{owner} 4600 {digest}"
    monkeypatch.setattr(_ssh_trust, "KNOWN_HOSTS", str(path))
    path.write_text("theirs\n" + BLOCK.format("ours\n"))
    assert _ssh_trust.fingerprint(str(path)).split()[2] == hashlib.sha256(b"ours\n").hexdigest()
