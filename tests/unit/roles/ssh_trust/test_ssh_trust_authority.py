"""The control node's half of ssh_trust, run as the role runs it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[4] / "roles/ssh_trust/files/ssh_trust_authority.py"


def call(action: str, folder: Path, **job: Any) -> subprocess.CompletedProcess[str]:
    text = json.dumps({"ca_dir": str(folder), "passphrase": "", "valid_days": 30, **job})
    return subprocess.run([sys.executable, SCRIPT, action], input=text, capture_output=True, text=True, check=False)


def request(tmp_path: Path, name: str) -> dict[str, Any]:
    key = tmp_path / name
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = " ".join((tmp_path / f"{name}.pub").read_text().split()[:2])
    return {"name": "host", "type": "host", "identity": name, "principals": [name], "public_key": public}


@pytest.mark.parametrize("passphrase", ["", "words with spaces and ' quotes"])
def test_signs_with_a_plain_and_with_an_encrypted_key(tmp_path: Path, passphrase: str) -> None:
    folder = tmp_path / "ca"
    assert call("create", folder, passphrase=passphrase).returncode == 0
    assert (folder.stat().st_mode & 0o777, (folder / "ca").stat().st_mode & 0o777) == (0o700, 0o600)
    assert (folder / ".gitignore").read_text() == "*\n"
    done = call("sign", folder, passphrase=passphrase, host="n1", requests=[request(tmp_path, "n1")])
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)["certificates"]["host"]
    shown = subprocess.run(
        ["ssh-keygen", "-L", "-f", "-"], input=line, capture_output=True, text=True, check=True
    ).stdout
    assert "host certificate" in shown
    assert 'Key ID: "n1"' in shown


def test_a_wrong_passphrase_is_said(tmp_path: Path) -> None:
    call("create", tmp_path / "ca", passphrase="right one")
    done = call("sign", tmp_path / "ca", passphrase="wrong one", host="n1", requests=[request(tmp_path, "n1")])
    assert done.returncode != 0
    assert "incorrect passphrase" in done.stderr


def test_an_existing_key_is_kept(tmp_path: Path) -> None:
    call("create", tmp_path)
    key = (tmp_path / "ca").read_bytes()
    assert call("create", tmp_path).returncode == 0
    assert (tmp_path / "ca").read_bytes() == key


def test_a_clone_of_an_earlier_host_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder)
    wish = request(tmp_path, "n1")
    assert call("sign", folder, host="n1", requests=[wish]).returncode == 0
    done = call("sign", folder, host="n2", requests=[{**wish, "identity": "n2"}])
    assert done.returncode != 0
    assert "n2 has the same host key as n1" in done.stderr
    assert call("sign", folder, host="n1", requests=[wish]).returncode == 0


def revoked(folder: Path, public_key: str, tmp_path: Path) -> bool:
    """What ssh itself says of a key and the authority's list."""
    (tmp_path / "asked.pub").write_text(public_key + "\n")
    asked = ["ssh-keygen", "-Q", "-f", str(folder / "revoked.krl"), str(tmp_path / "asked.pub")]
    return subprocess.run(asked, capture_output=True, check=False).returncode != 0


def keep(folder: Path, **job: Any) -> dict[str, Any]:
    done = call("keep", folder, **{"known_hosts": "", "patterns": [], "check": False, **job})
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def revoke(folder: Path, *patterns: str, check: bool = False) -> list[str]:
    changed: list[str] = keep(folder, patterns=patterns, check=check)["changed"]
    return changed


def test_revokes_every_key_that_a_host_ever_had(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder)
    keys = {name: request(tmp_path, name) for name in ("n1", "n1-older", "n2")}
    call("sign", folder, host="n1", requests=[{**keys["n1-older"], "identity": "n1"}])
    call("sign", folder, host="n1", requests=[keys["n1"]])
    call("sign", folder, host="n2", requests=[keys["n2"]])
    assert revoke(folder) == []
    assert revoke(folder, "n1", check=True) == ["n1", "n1"]
    assert not revoked(folder, keys["n1"]["public_key"], tmp_path)
    assert revoke(folder, "n1") == ["n1", "n1"]
    assert revoke(folder, "n1") == []
    assert [revoked(folder, keys[name]["public_key"], tmp_path) for name in keys] == [True, True, False]
    revoke(folder, "n2")
    assert [revoked(folder, keys[name]["public_key"], tmp_path) for name in keys] == [True, True, True]


def test_revokes_one_user_by_name_or_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder)
    for host in ("n1", "n2"):
        users = [
            {**request(tmp_path, f"{user}-{host}"), "type": "user", "name": user, "identity": f"{user}@{host}"}
            for user in ("alice", "bob")
        ]
        call("sign", folder, host=host, requests=users)
    assert revoke(folder, "alice@n1") == ["alice@n1"]
    assert revoke(folder, "alice@*") == ["alice@n2"]


def test_a_host_that_left_the_inventory_is_named_and_revoked_with_consent(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder)
    for host in ("n1", "n2"):
        call("sign", folder, host=host, requests=[request(tmp_path, host)])

    def said(**job: Any) -> tuple[list[str], list[str]]:
        answer = keep(folder, **{"inventory": ["n1"], **job})
        return answer["changed"], answer["removed"]

    assert said() == ([], ["n2"])
    assert said(revoke_removed=True) == (["n2"], [])
    assert said(revoke_removed=True) == ([], [])
    assert said(revoke_removed=True, inventory=[]) == ([], [])


def test_the_checksum_is_that_of_the_list_which_the_nodes_get(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder)
    assert keep(folder, check=True)["krl"] == ""
    call("sign", folder, host="n1", requests=[request(tmp_path, "n1")])
    first = keep(folder)["krl"]
    assert first == hashlib.sha256((folder / "revoked.krl").read_bytes()).hexdigest()
    assert keep(folder)["krl"] == first, "written only when a key is added"
    assert keep(folder, patterns=["n1"])["krl"] not in ("", first)


def test_what_ssh_on_the_control_node_knows_is_kept(tmp_path: Path) -> None:
    folder, line = tmp_path / "ca", "@cert-authority * ssh-ed25519 AAAA authority"
    call("create", folder)
    known = folder / "known_hosts"
    assert keep(folder)["known_hosts"] is False and not known.exists(), "no authority yet"
    assert keep(folder, known_hosts=line, check=True)["known_hosts"] is True and not known.exists()
    assert keep(folder, known_hosts=line)["known_hosts"] is True
    assert known.read_text() == f"{line}\n" and known.stat().st_mode & 0o777 == 0o644
    assert keep(folder, known_hosts=line)["known_hosts"] is False
    for spoil in (lambda: known.write_text("n1 ssh-rsa AAAA\n"), lambda: known.chmod(0o600), known.unlink):
        spoil()
        assert keep(folder, known_hosts=line)["known_hosts"] is True
        assert known.read_text() == f"{line}\n" and known.stat().st_mode & 0o777 == 0o644


def test_hosts_to_try_are_those_with_a_certificate_in_the_order_of_the_inventory(tmp_path: Path) -> None:
    folder, inventory = tmp_path / "ca", ["n2", "n3", "n1", "n10"]

    def ring() -> list[str]:
        found: list[str] = json.loads(call("ring", folder, inventory=inventory).stdout)
        return found

    assert ring() == []
    call("create", folder)
    for host in ("gone", "n1", "n2", "n10"):
        call("sign", folder, host=host, requests=[request(tmp_path, host)])
    assert ring() == ["n2", "n1", "n10"]
    keep(folder, patterns=["n1"])
    assert ring() == ["n2", "n10"], "nobody tries a host that is revoked"


@pytest.mark.parametrize("passphrase", ["", "words with spaces and ' quotes"])
def test_plain_pairs_are_encrypted_here_and_plain_on_a_node(tmp_path: Path, passphrase: str) -> None:
    folder = tmp_path / "ca"
    assert call("create", folder, passphrase=passphrase, users=["alice"]).returncode == 0
    stored = folder / "users/alice"
    assert ((folder / "users").stat().st_mode & 0o777, stored.stat().st_mode & 0o777) == (0o700, 0o600)
    opened = ["ssh-keygen", "-y", "-P", "", "-f", str(stored)]
    assert (subprocess.run(opened, capture_output=True, check=False).returncode == 0) is (not passphrase)
    answer = json.loads(call("pairs", folder, passphrase=passphrase, users=["alice"]).stdout)
    (tmp_path / "node").write_text(answer["private"]["alice"])
    (tmp_path / "node").chmod(0o600)
    opened[-1] = str(tmp_path / "node")
    assert subprocess.run(opened, capture_output=True, text=True, check=True).stdout == answer["public"]["alice"]
    assert sorted(path.name for path in (folder / "users").iterdir()) == ["alice", "alice.pub", "keys"]


def test_a_revoked_plain_pair_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder, users=["alice", "bob"])
    old = (folder / "users/alice.pub").read_text()
    assert revoke(folder, "n1") == []
    assert revoke(folder, "alice@*") == ["alice@*"]
    assert revoked(folder, old, tmp_path)
    call("create", folder, users=["alice"])
    new = (folder / "users/alice.pub").read_text()
    assert new != old
    assert not revoked(folder, new, tmp_path)
    assert not revoked(folder, (folder / "users/bob.pub").read_text(), tmp_path)


@pytest.mark.parametrize("passphrase", ["", "words with spaces and ' quotes"])
def test_an_interrupted_run_leaves_an_authority_that_the_next_one_finishes(tmp_path: Path, passphrase: str) -> None:
    assert call("create", tmp_path, passphrase=passphrase).returncode == 0
    key, public = (tmp_path / "ca").read_text(), (tmp_path / "ca.pub").read_text()
    (tmp_path / "ca.pub").unlink()
    wrong = call("create", tmp_path, passphrase="another")
    assert (wrong.returncode != 0) is bool(passphrase) and (tmp_path / "ca.pub").exists() is not bool(passphrase)
    done = call("create", tmp_path, passphrase=passphrase)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ca").read_text() == key and (tmp_path / "ca.pub").read_text() == public
    assert sorted(path.name for path in tmp_path.iterdir()) == [".gitignore", "ca", "ca.pub"]


def test_a_private_key_that_is_gone_is_not_replaced(tmp_path: Path) -> None:
    assert call("create", tmp_path).returncode == 0
    (tmp_path / "ca").unlink()
    done = call("create", tmp_path, users=["alice"])
    assert done.returncode != 0 and f"{tmp_path}/ca is missing" in done.stderr
    assert not (tmp_path / "ca").exists() and not (tmp_path / "users").exists()
