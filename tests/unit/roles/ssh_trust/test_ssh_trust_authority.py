"""The control node's half of ssh_trust, run as the role runs it."""

from __future__ import annotations

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


def test_revokes_every_key_that_a_host_ever_had(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    call("create", folder)
    keys = {name: request(tmp_path, name) for name in ("n1", "n1-older", "n2")}
    call("sign", folder, host="n1", requests=[{**keys["n1-older"], "identity": "n1"}])
    call("sign", folder, host="n1", requests=[keys["n1"]])
    call("sign", folder, host="n2", requests=[keys["n2"]])
    assert json.loads(call("revoke", folder, patterns=[], check=False).stdout) == {"changed": []}
    assert json.loads(call("revoke", folder, patterns=["n1"], check=True).stdout) == {"changed": ["n1", "n1"]}
    assert not revoked(folder, keys["n1"]["public_key"], tmp_path)
    assert json.loads(call("revoke", folder, patterns=["n1"], check=False).stdout) == {"changed": ["n1", "n1"]}
    assert json.loads(call("revoke", folder, patterns=["n1"], check=False).stdout) == {"changed": []}
    assert [revoked(folder, keys[name]["public_key"], tmp_path) for name in keys] == [True, True, False]
    call("revoke", folder, patterns=["n2"], check=False)
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
    assert json.loads(call("revoke", folder, patterns=["alice@n1"], check=False).stdout) == {"changed": ["alice@n1"]}
    assert json.loads(call("revoke", folder, patterns=["alice@*"], check=False).stdout) == {"changed": ["alice@n2"]}
