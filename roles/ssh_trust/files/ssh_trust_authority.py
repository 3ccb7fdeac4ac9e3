# Copyright: (c) 2026, the gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate authority on the control node: make its key, sign the certificates of one node, revoke keys.

Argument: `create`, `sign` or `revoke`. Standard input: a JSON object {ca_dir, passphrase} and,
to sign, {host, valid_days, requests: [{name, type, identity, principals, public_key}]},
to revoke, {patterns, check}: patterns of hosts and of user@host; with `check` only the answer.
`sign` prints {certificates: {name: line}}, `revoke` {changed: [identity]}.

CA_DIR/issued/HOST/ keeps what was signed last, and in `keys` all keys that were ever signed there, by identity;
CA_DIR/revoked_keys those revoked, and CA_DIR/revoked.krl the same for ssh.

The passphrase goes to ssh-keygen by its standard input, so that neither arguments nor environment show it. (The modules
of community.crypto sign nothing with an encrypted key, and make one only where Python's bcrypt is installed.)
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


def ssh_keygen(*argv: str, passphrase: str) -> None:
    done = subprocess.run(
        ["ssh-keygen", "-q", *argv],
        input=f"{passphrase}\n{passphrase}\n",
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # no terminal to ask at
        env={**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"},
    )
    if done.returncode:
        raise SystemExit(f"ssh-keygen: {done.stderr.strip() or done.stdout.strip()}")


def create(job: dict[str, Any]) -> None:
    """The folder, out of git's sight, and in it the key."""
    folder = Path(job["ca_dir"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    if not (folder / "ca").exists():
        words = ("-t", "ed25519", "-C", "ssh_trust authority", "-f", str(folder / "ca"))
        ssh_keygen(*words, passphrase=job["passphrase"])


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def twin(issued: Path, host: str, public_key: str) -> str:
    """The name of another host that was certified with the same host key; empty where there is none."""
    for path in issued.glob("*/host.pub"):
        if path.parent.name != host and path.read_text(encoding="utf-8").split()[:2] == public_key.split()[:2]:
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
    line = f"{request['public_key']} {request['identity']}"
    if line not in lines(folder / "keys"):
        with open(folder / "keys", "a", encoding="utf-8") as file:
            file.write(line + "\n")
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


def revoke(job: dict[str, Any]) -> dict[str, Any]:
    """Revoke every key that was ever signed for a matching host (with its users) or user@host."""
    folder = Path(job["ca_dir"])
    known = lines(folder / "revoked_keys")
    added = []
    for path in sorted(folder.glob("issued/*/keys")):
        for line in lines(path):
            names = (path.parent.name, line.split()[2])
            if line not in known and any(fnmatchcase(name, pattern) for pattern in job["patterns"] for name in names):
                added.append(line)
    if not job["check"] and (added or not (folder / "revoked.krl").exists()):
        text = "".join(line + "\n" for line in known + added)
        (folder / "revoked_keys").write_text(text, encoding="utf-8")
        ssh_keygen("-k", "-f", str(folder / "revoked.new"), str(folder / "revoked_keys"), passphrase="")
        (folder / "revoked.new").replace(folder / "revoked.krl")
        for pattern in job["patterns"]:
            for path in [path for path in folder.glob("issued/*") if fnmatchcase(path.name, pattern)]:
                (path / "host-cert.pub").unlink(missing_ok=True)  # no longer a host to try
    return {"changed": [line.split()[2] for line in added]}


if __name__ == "__main__":
    task = json.load(sys.stdin)
    if sys.argv[1] == "create":
        create(task)
    else:
        print(json.dumps({"sign": sign_all, "revoke": revoke}[sys.argv[1]](task)))
