# Copyright: (c) 2026, the gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what a node's sshd does now and which certificates it still needs. Reads only; prints one line of JSON.
Argument: a JSON object {name, address, users, principals, ca, replace, revoked, revoked_keys}; `ca` is the authority's
public key or empty, `revoked` patterns of hosts and of user@host, `revoked_keys` the public keys revoked so far.
Answer: {installed, problems, work, keys, stale, in_effect, digest, reload, active, ports, host_key, host_key_path,
include}. `work` holds one signing request for each certificate that is missing or no longer right; `keys` the users
whose key pair is missing; `stale` files of users who are no longer trusted; `problems` what the role refuses.
"""

from __future__ import annotations

import base64
import fnmatch
import glob
import hashlib
import ipaddress
import json
import os
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from typing import Any, NamedTuple

ETC = "/etc/ssh"
CA_FILE, HOST_CERTIFICATE = f"{ETC}/ssh_trust_ca.pub", f"{ETC}/ssh_trust_host-cert.pub"
DROPINS = {name: f"{ETC}/{name}.d/05-ssh-trust.conf" for name in ("sshd_config", "ssh_config")}
REVOKED, STAMP = f"{ETC}/ssh_trust_revoked.krl", f"{ETC}/ssh_trust_applied"
KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
KEY_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2}  # ECDSA has two: curve and point
# Interfaces whose addresses come and go, or are alike on many hosts.
PASSING = re.compile(r"^(lo|docker|podman|br-|veth|virbr|cni|flannel|cali|lxc|lxd|tailscale|wg)")
SBIN = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Certificate(NamedTuple):
    """What decides whether an OpenSSH certificate can stay. Times are seconds since the epoch, UTC."""

    key: tuple[bytes, ...]
    host: bool
    identity: str
    principals: frozenset[str]
    after: int
    before: int
    authority: bytes


def read(path: str) -> str:
    """Text of a file, empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": SBIN, "LC_ALL": "C"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


def blob(line: str) -> bytes:
    """The binary key in a public key or certificate line; empty where there is none."""
    words = line.split()
    try:
        return base64.b64decode(words[1], validate=True)
    except (IndexError, ValueError):
        return b""


def strings(data: bytes, count: int) -> tuple[tuple[bytes, ...], bytes]:
    """The first `count` SSH strings (32 bit length, then bytes) and the rest."""
    found = []
    for _unused in range(count):
        (size,) = struct.unpack_from(">I", data)
        if len(data) < 4 + size:
            raise ValueError("truncated")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return tuple(found), data


def public_key(line: str) -> tuple[bytes, ...]:
    """Type and numbers of a plain public key, to compare with a certificate's."""
    data = blob(line)
    (kind,), _unused = strings(data, 1)
    return strings(data, 1 + KEY_FIELDS.get(kind.decode(), 2))[0]


def parse_certificate(line: str) -> Certificate | None:
    """A certificate line, parsed after PROTOCOL.certkeys of OpenSSH; None where it is none."""
    try:
        (kind, _nonce), data = strings(blob(line), 2)
        plain = kind.decode().replace("-cert-v01@openssh.com", "")
        key, data = strings(data, KEY_FIELDS.get(plain, 2))
        _serial, role = struct.unpack_from(">QI", data)
        (identity, packed), data = strings(data[12:], 2)
        after, before = struct.unpack_from(">QQ", data)
        (_critical, _extensions, _reserved, authority), _unused = strings(data[16:], 4)
        principals = []
        while packed:
            (name,), packed = strings(packed, 1)
            principals.append(name.decode())
        words = identity.decode()
    except (struct.error, ValueError):
        return None
    return Certificate((plain.encode(), *key), role == 2, words, frozenset(principals), after, before, authority)


def wrong(request: dict[str, Any], line: str, authority: str, now: float) -> str:
    """Why the certificate in `line` cannot stay for this request; empty where it can."""
    have = parse_certificate(line)
    if have is None or not request["public_key"]:
        return "no certificate"
    reasons = {
        "signed by another authority": have.authority != blob(authority),
        "made for another key": have.key != public_key(request["public_key"]),
        "made for something else": have.host != (request["type"] == "host") or have.identity != request["identity"],
        "names or addresses changed": have.principals != frozenset(request["principals"]),
        "not valid yet": have.after > now,
        "expired": have.before <= now,
        "less than a third of its time left": (have.before - now) * 3 < have.before - have.after,
    }
    return next((reason for reason, true in reasons.items() if true), "")


def addresses(links: list[dict[str, Any]]) -> list[str]:
    """The lasting addresses in what `ip -j address` prints: no link-local, privacy or container network ones."""
    lasting = [link for link in links if not PASSING.match(link.get("ifname", "lo"))]
    entries = [entry for link in lasting for entry in link.get("addr_info", []) if entry.get("scope") == "global"]
    kept = [entry for entry in entries if not (entry.get("temporary") or entry.get("deprecated"))]
    return [str(ipaddress.ip_address(entry["local"])) for entry in kept]


def names(request: dict[str, Any], found: list[str]) -> list[str]:
    """Principals of this host: the inventory's name and address, its own names, its addresses, what the user added."""
    own = [socket.gethostname(), socket.gethostname().split(".")[0], socket.getfqdn()]
    wanted = [request["name"], request["address"], *own, *found, *request["principals"]]
    return sorted({name.lower() for name in wanted if name and not re.match(r"localhost|127\.|::1$|ip6-", name)})


def settings(text: str) -> dict[str, list[str]]:
    """What `sshd -T` prints: lower-case keyword to its values, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _unused, value = line.partition(" ")
        found.setdefault(word.lower(), []).append(value.strip())
    return found


def includes(config: str, dropin: str) -> bool:
    """Whether a client or server configuration reads the drop-in before its first Match or Host block."""
    for line in config.splitlines():
        words = line.replace("=", " ").split()
        word = words[0].lower() if words else ""
        if word in ("match", "host"):
            return False
        if word == "include" and any(fnmatch.fnmatch(dropin, os.path.join(ETC, pattern)) for pattern in words[1:]):
            return True
    return False


def who_sets(keyword: str) -> str:
    """The files below /etc/ssh that hold a server keyword, for messages."""
    folder = f"{ETC}/sshd_config.d"
    dropins = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    files = [f"{ETC}/sshd_config", *(f"{folder}/{name}" for name in dropins)]
    return ", ".join(path for path in files if re.search(rf"(?im)^\s*{keyword}\b", read(path))) or "built in"


def refusals(have: dict[str, list[str]], kind: str) -> list[str]:
    """What in sshd's effective settings keeps certificates from working, or would be overruled by ours."""
    found = []

    def others(keyword: str, ours: str, trouble: str) -> None:
        for value in have.get(keyword.lower(), []):
            if value not in ("none", ours):
                found.append(f"sshd has {keyword} {value} (in {who_sets(keyword)}): {trouble}")
                return

    def lacks(keyword: str, wanted: str) -> None:
        wanted = f"{'rsa-sha2-512' if wanted == 'ssh-rsa' else wanted}-cert-v01@openssh.com"
        if keyword.lower() in have and not any(wanted in value.split(",") for value in have[keyword.lower()]):
            found.append(f"sshd's {keyword} (in {who_sets(keyword)}) leaves out {wanted}; add it")

    others("PubkeyAuthentication", "yes", "certificates need yes")
    others("HostCertificate", HOST_CERTIFICATE, "it would hide ours; remove it, or do without this role")
    others("TrustedUserCAKeys", CA_FILE, "ours would take its place; remove it, or do without this role")
    others("RevokedKeys", REVOKED, "ours would take its place; remove it, or do without this role")
    others("AuthorizedPrincipalsFile", "none", "it does not know the names in our certificates; remove it")
    others("AuthorizedPrincipalsCommand", "none", "it does not know the names in our certificates; remove it")
    lacks("HostKeyAlgorithms", kind)
    lacks("PubkeyAcceptedAlgorithms", "ssh-ed25519")
    return found


def host_key(have: dict[str, list[str]]) -> tuple[str, str]:
    """Path and public key of the best host key that sshd uses; empty where it has none."""
    ranked = []
    for path in have.get("hostkey", []):
        words = (read(f"{path}.pub") or run("ssh-keygen", "-y", "-f", path).stdout).split()[:2]
        if words and words[0] in KEY_TYPES:
            ranked.append((KEY_TYPES.index(words[0]), path, " ".join(words)))
    return min(ranked)[1:] if ranked else ("", "")


def offered(have: dict[str, list[str]]) -> bool:
    """Whether the sshd that runs now offers the certificate that lies on the disk; true where none answers here."""
    host, _unused, port = have.get("listenaddress", ["127.0.0.1:22"])[0].rpartition(":")
    host = "::1" if host == "[::]" else host.strip("[]") if host.strip("0.") else "127.0.0.1"
    asked = run("ssh-keyscan", "-c", "-T", "5", "-p", port, host)
    return "SSH-2.0" not in asked.stdout + asked.stderr or read(HOST_CERTIFICATE).split()[1] in asked.stdout


def wishes(request: dict[str, Any], key: str, found: list[str]) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """The certificates that this node should have, the users without a key pair, and refusals of unknown users."""
    host = {"name": "host", "type": "host", "identity": request["name"], "principals": names(request, found)}
    wanted = [{**host, "public_key": key, "path": HOST_CERTIFICATE}]
    without, unknown = [], []
    for user in request["users"]:
        path = f"{ETC}/ssh_trust_key_{user}"
        try:
            uid = pwd.getpwnam(user).pw_uid
        except KeyError:
            unknown.append(f"ssh_trust_users names '{user}', whom the host does not know (getent passwd)")
            continue
        if not os.path.exists(path) or os.stat(path).st_uid != uid or os.stat(path).st_mode & 0o077:
            without.append(user)
        item = {"name": user, "type": "user", "identity": f"{user}@{request['name']}", "principals": [user]}
        public = " ".join(read(f"{path}.pub").split()[:2])
        wanted.append({**item, "public_key": public, "path": f"{path}-cert.pub"})
    return wanted, without, unknown


def revocations(request: dict[str, Any], wanted: list[dict[str, Any]]) -> list[str]:
    """What of this host is revoked and must not be certified again."""
    found = []
    for item in wanted:
        if any(fnmatch.fnmatch(item["identity"], pattern) for pattern in request["revoked"]):
            found.append(f"{item['identity']} is in ssh_trust_revoked; take it off when it is installed anew")
        elif item["public_key"] and item["public_key"] in request["revoked_keys"]:
            file = "ssh_host_*" if item["type"] == "host" else f"ssh_trust_key_{item['name']}*"
            found.append(f"the key of {item['identity']} is revoked; remove {ETC}/{file} to get another")
    return found


def look(request: dict[str, Any]) -> dict[str, Any]:
    """The whole answer; see the top of this file."""
    nothing: dict[str, Any] = {"problems": [], "work": [], "keys": [], "stale": [], "in_effect": False, "reload": True}
    if os.geteuid() != 0:
        return {**nothing, "problems": ["the role needs root on the node; set become: true"], "installed": False}
    if not shutil.which("sshd", path=SBIN):
        return {**nothing, "installed": False}
    effective = run("sshd", "-T", "-C", "user=root,host=localhost,addr=127.0.0.1")  # -C: a Match block needs it
    if effective.returncode:
        said = effective.stderr.strip()
        return {**nothing, "problems": [f"sshd refuses its present configuration: {said}"], "installed": True}
    have = settings(effective.stdout)
    path, key = host_key(have)
    problems = refusals(have, key.split()[0]) if key else ["sshd has no readable host key"]
    trusted = blob(read(CA_FILE))
    if trusted and trusted != blob(request["ca"]) and not request["replace"]:
        problems.append(
            "it trusts another authority than that in ssh_trust_ca_dir; correct it or set ssh_trust_ca_replace"
        )
    links = run("ip", "-j", "address").stdout
    wanted, keys, unknown = wishes(request, key, addresses(json.loads(links or "[]")))
    reasons = {item["path"]: wrong(item, read(item["path"]), request["ca"], time.time()) for item in wanted}
    work = [{**item, "reason": reasons[item["path"]]} for item in wanted if reasons[item["path"]]]
    problems += unknown + revocations(request, wanted)
    kept = [f"{item['path'].removesuffix('-cert.pub')}{end}" for item in wanted for end in ("", ".pub", "-cert.pub")]
    set_up = have.get("trustedusercakeys") == [CA_FILE] and HOST_CERTIFICATE in have.get("hostcertificate", [])
    now = set_up and bool(read(HOST_CERTIFICATE)) and offered(have)
    digest = hashlib.sha256("".join(map(read, (DROPINS["sshd_config"], HOST_CERTIFICATE))).encode()).hexdigest()
    return {
        "installed": True,
        "problems": problems,
        "work": work,
        "keys": keys,
        "stale": sorted(set(glob.glob(f"{ETC}/ssh_trust_key_*")) - set(kept)),
        "in_effect": now and not work and request["ca"] in read(f"{ETC}/ssh_known_hosts"),
        "digest": digest,
        "reload": not now or read(STAMP).strip() != digest,
        "active": run("systemctl", "is-active", "ssh.service").stdout.strip() == "active",
        "ports": have.get("port", ["22"]),
        "host_key": key,
        "host_key_path": path,
        "include": {name: includes(read(f"{ETC}/{name}"), dropin) for name, dropin in DROPINS.items()},
    }


if __name__ == "__main__":
    print(json.dumps(look(json.loads(sys.argv[1]))))
