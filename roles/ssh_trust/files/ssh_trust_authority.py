# Copyright: (c) 2026, the gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate authority on the control node: make its key, sign the certificates of one node, revoke keys.

Argument: what to do. Standard input: a JSON object {ca_dir, passphrase} and more, by argument:
`create`  makes the key, and the plain key pairs of {users}.
`sign`    {host, valid_days, requests: [{name, type, identity, principals, public_key}]} -> {certificates: {name: line}}
`pairs`   {users} -> {private: {user: text}, public: {user: line}}, to be put on a node.
`keep`    {known_hosts, patterns, inventory, revoke_removed, check}
          -> {known_hosts, changed: [identity], removed: [host], krl}. Writes the line `known_hosts`, for ssh on the
          control node, unless it is empty, and says whether that was a change. Revokes keys by patterns, of hosts and
          of user@host; `removed` are hosts with a certificate that are not in the inventory, `krl` is the SHA-256 of
          the list of revoked keys. With `check` only the answer.
`ring`    {inventory} -> [host], those of the inventory, in its order, that have a certificate.

CA_DIR/issued/HOST/ keeps what was signed last, and in `keys` all keys that were ever signed there, by identity;
CA_DIR/users/ the plain pairs, encrypted like the authority's key, and in `keys` all that there ever were;
CA_DIR/revoked_keys those revoked, and CA_DIR/revoked.krl the same for ssh.

The passphrase goes to ssh-keygen by its standard input, so that neither arguments nor environment show it. (The modules
of community.crypto sign nothing with an encrypted key, and make one only where Python's bcrypt is installed.)
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


def ssh_keygen(*argv: str, passphrase: str, answers: str = "") -> str:
    """What it prints, with the passphrase typed in twice, or with other answers."""
    done = subprocess.run(
        ["ssh-keygen", "-q", *argv],
        input=answers or f"{passphrase}\n{passphrase}\n",
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # no terminal to ask at
        env={**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"},
    )
    if done.returncode:
        raise SystemExit(f"ssh-keygen: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def note(path: Path, line: str) -> None:
    """Add a line to a file that has each line once."""
    if line not in lines(path):
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def plain(path: Path) -> str:
    """Type and key of a public key file, without its comment."""
    return " ".join(path.read_text(encoding="utf-8").split()[:2])


def make(key: Path, passphrase: str) -> None:
    """The authority's pair, the public half last: until that is there the nodes have not heard of it.

    A key without it is one of an interrupted run, or of a folder that was not brought back whole. It stays.
    """
    with tempfile.TemporaryDirectory(dir=key.parent) as folder:
        new, public = Path(folder) / key.name, Path(folder) / f"{key.name}.pub"
        if key.exists():
            line = ssh_keygen("-y", "-f", str(key), passphrase=passphrase)
            public.write_text(line, encoding="utf-8")
        else:
            ssh_keygen("-t", "ed25519", "-C", "ssh_trust authority", "-f", str(new), passphrase=passphrase)
            new.replace(key)
        public.replace(key.with_name(public.name))


def create(job: dict[str, Any]) -> None:
    """The folder, out of git's sight, and in it the key; plain pairs of users who have none, or a revoked one."""
    folder = Path(job["ca_dir"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    key, public = folder / "ca", folder / "ca.pub"
    if not key.exists() and public.exists():
        raise SystemExit(f"{key} is missing, the private key of {public}: bring it back, or remove both for a new one")
    if not public.exists():
        make(key, job["passphrase"])
    revoked = {" ".join(line.split()[:2]) for line in lines(folder / "revoked_keys")}
    for user in job.get("users", []):
        path = folder / "users" / user
        path.parent.mkdir(mode=0o700, exist_ok=True)
        public = path.with_name(f"{user}.pub")
        if public.exists() and plain(public) in revoked:
            path.unlink()
        if not path.exists():
            ssh_keygen("-t", "ed25519", "-C", f"{user}@*", "-f", str(path), passphrase=job["passphrase"])
            note(path.parent / "keys", f"{plain(public)} {user}@*")


def pairs(job: dict[str, Any]) -> dict[str, Any]:
    """Plain pairs as they go on a node: decrypted in a folder that goes at once."""
    found: dict[str, Any] = {"private": {}, "public": {}}
    for user in job["users"]:
        path = Path(job["ca_dir"]) / "users" / user
        text = path.read_text(encoding="utf-8")
        if job["passphrase"]:
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                copy = Path(folder) / "key"
                copy.touch(mode=0o600)
                copy.write_text(text, encoding="utf-8")
                ssh_keygen("-p", "-f", str(copy), passphrase="", answers=f"{job['passphrase']}\n\n\n")
                text = copy.read_text(encoding="utf-8")
        found["private"][user] = text
        found["public"][user] = path.with_name(f"{user}.pub").read_text(encoding="utf-8")
    return found


def twin(issued: Path, host: str, public_key: str) -> str:
    """The name of another host that was certified with the same host key; empty where there is none."""
    for path in issued.glob("*/host.pub"):
        if path.parent.name != host and plain(path) == " ".join(public_key.split()[:2]):
            return path.parent.name
    return ""


def sign(job: dict[str, Any], request: dict[str, Any], folder: Path) -> str:
    """One certificate line. It is valid from an hour ago, since clocks differ."""
    public = folder / f"{request['name']}.pub"
    public.write_text(request["public_key"] + "\n", encoding="utf-8")
    words = ["-s", f"{job['ca_dir']}/ca", "-I", request["identity"], "-n", ",".join(request["principals"])]
    words += ["-V", f"-1h:+{int(job['valid_days'])}d", "-z", str(secrets.randbits(63))]
    words += ["-h"] if request["type"] == "host" else []
    ssh_keygen(*words, str(public), passphrase=job["passphrase"])
    note(folder / "keys", f"{request['public_key']} {request['identity']}")
    return (folder / f"{request['name']}-cert.pub").read_text(encoding="utf-8")


def sign_all(job: dict[str, Any]) -> dict[str, Any]:
    issued = Path(job["ca_dir"]) / "issued"
    folder = issued / job["host"]
    for request in job["requests"]:
        other = twin(issued, job["host"], request["public_key"]) if request["type"] == "host" else ""
        if other:
            raise SystemExit(
                f"{job['host']} has the same host key as {other}. If it was cloned, remove /etc/ssh/ssh_host_* on it "
                f"and run ssh-keygen -A; if {other} was renamed, remove {issued / other}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    return {"certificates": {request["name"]: sign(job, request, folder) for request in job["requests"]}}


def believe(folder: Path, line: str, check: bool) -> bool:
    """Let ssh on the control node know the hosts. True when the file was not as it should be."""
    path = folder / "known_hosts"
    if not line or (lines(path) == [line] and path.stat().st_mode & 0o777 == 0o644):
        return False
    if not check:
        new = path.with_name("known_hosts.new")
        new.write_text(line + "\n", encoding="utf-8")
        new.chmod(0o644)
        new.replace(path)
    return True


def ring(job: dict[str, Any]) -> list[str]:
    """Hosts to try: what is certified, in the order of the inventory."""
    issued = Path(job["ca_dir"]) / "issued"
    return [name for name in job["inventory"] if (issued / name / "host-cert.pub").is_file()]


def removed(folder: Path, inventory: list[str]) -> list[str]:
    """Hosts that have a certificate but are in the inventory no longer."""
    certified = sorted(path.parent.name for path in folder.glob("issued/*/host-cert.pub"))
    return [name for name in certified if inventory and name not in inventory]


def revoke(job: dict[str, Any]) -> dict[str, Any]:
    """Revoke every key that was ever signed for a matching host (with its users) or user@host."""
    folder = Path(job["ca_dir"])
    gone = removed(folder, job.get("inventory", []))
    patterns = [*job["patterns"], *(gone if job.get("revoke_removed") else [])]
    known = lines(folder / "revoked_keys")
    added = []
    for path in [*sorted(folder.glob("issued/*/keys")), folder / "users/keys"]:
        for line in lines(path):
            names = (line.split()[2], *([path.parent.name] if path.parent.parent.name == "issued" else []))
            if line not in known and any(fnmatchcase(name, pattern) for pattern in patterns for name in names):
                added.append(line)
    if not job["check"] and (added or not (folder / "revoked.krl").exists()):
        text = "".join(line + "\n" for line in known + added)
        (folder / "revoked_keys").write_text(text, encoding="utf-8")
        ssh_keygen("-k", "-f", str(folder / "revoked.new"), str(folder / "revoked_keys"), passphrase="")
        (folder / "revoked.new").replace(folder / "revoked.krl")
        for pattern in patterns:
            for path in [path for path in folder.glob("issued/*") if fnmatchcase(path.name, pattern)]:
                (path / "host-cert.pub").unlink(missing_ok=True)  # no longer a host to try
    return {"changed": [line.split()[2] for line in added], "removed": [host for host in gone if host not in patterns]}


def keep(job: dict[str, Any]) -> dict[str, Any]:
    """What the control node and the nodes read of this folder, as it should be."""
    folder = Path(job["ca_dir"])
    known = believe(folder, job["known_hosts"], job["check"])
    revoked, krl = revoke(job), folder / "revoked.krl"
    digest = hashlib.sha256(krl.read_bytes()).hexdigest() if krl.exists() else ""
    return {**revoked, "known_hosts": known, "krl": digest}


if __name__ == "__main__":
    task = json.load(sys.stdin)
    if sys.argv[1] == "create":
        create(task)
    else:
        print(json.dumps({"sign": sign_all, "pairs": pairs, "keep": keep, "ring": ring}[sys.argv[1]](task)))
