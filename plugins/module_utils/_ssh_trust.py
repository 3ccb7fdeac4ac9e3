# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role ssh_trust finds on a node and what is still to do. Reads only. Private to this collection."""

from __future__ import annotations

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
import time
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _sshd, _sshd_login
from ansible_collections.gpuops.cluster.plugins.module_utils._host_questions import read
from ansible_collections.gpuops.cluster.plugins.module_utils._ssh_certificate import blob, wrong
from ansible_collections.gpuops.cluster.plugins.module_utils._sshd import AUTHORIZED, CA_FILE, DROPINS, ETC

STAMP = f"{ETC}/ssh_trust_applied"
KNOWN_HOSTS = f"{ETC}/ssh_known_hosts"
MARKER = "# {} gpuops.cluster.ssh_trust"  # with BEGIN and END, as ansible.builtin.blockinfile writes it
# Interfaces whose addresses come and go, or are alike on many hosts.
PASSING = re.compile(r"^(lo|docker|podman|br-|veth|virbr|cni|flannel|cali|lxc|lxd|tailscale|wg)")


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


def private(user: str) -> str:
    return f"{ETC}/ssh_trust_key_{user}"


def public(user: str) -> str:
    """The public key that lies beside a user's private one, without its comment."""
    return " ".join(read(f"{private(user)}.pub").split()[:2])


def usable(user: str) -> bool:
    """Whether the private key is there, and the user's alone."""
    path = private(user)
    return (
        os.path.exists(path) and os.stat(path).st_uid == pwd.getpwnam(user).pw_uid and not os.stat(path).st_mode & 0o077
    )


def known(user: str) -> bool:
    try:
        return bool(pwd.getpwnam(user))
    except KeyError:
        return False


def certificates(request: dict[str, Any], key: str, found: list[str]) -> list[dict[str, Any]]:
    """The certificates that this node should have."""
    host = {"name": "host", "type": "host", "identity": request["name"], "principals": names(request, found)}
    wanted = [{**host, "public_key": key, "path": _sshd.HOST_CERTIFICATE}]
    for user in request["users"] if request["mode"] == "certificates" else []:
        item = {"name": user, "type": "user", "identity": f"{user}@{request['name']}", "principals": [user]}
        wanted.append({**item, "public_key": public(user), "path": f"{private(user)}-cert.pub"})
    return wanted


def revocations(request: dict[str, Any], wanted: list[dict[str, Any]]) -> list[str]:
    """What of this host is revoked and must not be certified again."""
    found = []
    for item in wanted:
        if any(fnmatch.fnmatch(item["identity"], pattern) for pattern in request["revoked"]):
            found.append(f"{item['identity']} is in ssh_trust_revoked; take it off when it is installed anew")
        elif item["public_key"] and item["public_key"] in request["revoked_keys"]:
            file = "ssh_host_*" if item["type"] == "host" else f"ssh_trust_key_{item['name']}*"
            found.append(f"the key of {item['identity']} is revoked; remove {ETC}/{file} to get another")
    if request["mode"] == "keys":
        listed = [user for user in request["users"] if any(fnmatch.fnmatch(f"{user}@*", p) for p in request["revoked"])]
        found += [f"{user}@* is in ssh_trust_revoked; take it off to give {user} another key" for user in listed]
    return found


def locked_out(request: dict[str, Any], have: dict[str, list[str]], address: str, since: float) -> list[str]:
    """Whom sshd does not let in, and what our reload could bring about (sshd lets us in as it is: we are here)."""
    mode = request["mode"] == "certificates"
    shut = {user: _sshd_login.refused(user, address, have, mode) for user in request["everyone"]}
    found = [
        f"sshd does not let {user} in from {address}: {why}; change that, or take {user} off ssh_trust_users"
        for user, why in shut.items()
        if why
    ]
    files = _sshd.unread(since) if request["over_ssh"] else []
    if files:
        found.append(
            f"{', '.join(files)} was written after sshd last read it, and our reload would bring it to life: "
            "run systemctl reload ssh yourself, and log in anew, before this role"
        )
    return found


def pairs(request: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Users whose pair is still to come, and those among them whose present one must go (it is, or was, shared)."""
    users = [user for user in request["users"] if known(user)]
    if request["mode"] == "keys":
        return [user for user in users if not usable(user) or public(user) != request["shared"].get(user)], []
    other = [user for user in users if public(user) and public(user) == request["shared"].get(user)]
    return [user for user in users if user in other or not usable(user)], other


def stale(request: dict[str, Any], wanted: list[dict[str, Any]]) -> list[str]:
    """Our files of users, or of a mode, that are no longer right."""
    kept = {item["path"] for item in wanted} | {
        f"{private(user)}{end}" for user in request["users"] for end in ("", ".pub")
    }
    allowed = {f"{AUTHORIZED}/{user}" for user in request["shared"]} if request["mode"] == "keys" else set()
    lists = set(glob.glob(f"{AUTHORIZED}/*")) - allowed
    folder = {AUTHORIZED} if request["mode"] == "certificates" and os.path.isdir(AUTHORIZED) else set()
    return sorted((set(glob.glob(f"{ETC}/ssh_trust_key_*")) - kept) | lists | folder, reverse=True)


def block(text: str) -> str:
    """What stands between our markers; empty where one of them is missing."""
    lines = text.splitlines()
    begin, end = (
        max((number for number, line in enumerate(lines) if line == MARKER.format(word)), default=-1)
        for word in ("BEGIN", "END")
    )
    return "".join(f"{line}\n" for line in lines[begin + 1 : end]) if 0 <= begin < end else ""


def fingerprint(path: str) -> str:
    """Owner, mode and checksum of a file that we write, or of our part of it; empty where there is none."""
    try:
        with open(path, "rb") as file:
            data, about = file.read(), os.fstat(file.fileno())
    except OSError:
        return ""
    if path == KNOWN_HOSTS:
        data = block(data.decode("utf-8", "replace")).encode()
    return f"{about.st_uid}:{about.st_gid} {about.st_mode & 0o7777:04o} {hashlib.sha256(data).hexdigest()}"


def set_up(request: dict[str, Any], have: dict[str, list[str]]) -> bool:
    """Whether sshd's files say what they should."""
    if _sshd.HOST_CERTIFICATE not in have.get("hostcertificate", []) or not read(_sshd.HOST_CERTIFICATE):
        return False
    if request["mode"] == "certificates":
        return have.get("trustedusercakeys") == [CA_FILE]
    return f"{AUTHORIZED}/%u" in " ".join(have.get("authorizedkeysfile", [])).split()


def look(request: dict[str, Any]) -> dict[str, Any]:
    """The whole answer, which the module ssh_trust_state documents."""
    nothing: dict[str, Any] = {
        **{"problems": [], "work": [], "missing_pairs": [], "shared_pairs": [], "stale": [], "unauthorized": []},
        **{"in_effect": False, "reload": True, "installed": False},
    }
    if os.geteuid() != 0:
        return {**nothing, "problems": ["the role needs root on the node; set become: true"]}
    if not shutil.which("sshd", path=_sshd.SBIN):
        return nothing
    links = addresses(json.loads(_sshd.stdout("ip", "-j", "address") or "[]"))
    address = request["peer"] or (links or ["127.0.0.1"])[0]
    have, refused = _sshd.effective(_sshd.NOBODY, address)
    if refused:
        return {**nothing, "problems": [f"sshd refuses its present configuration: {refused}"], "installed": True}
    path, key = _sshd.host_key(have)
    by_certificate = request["mode"] == "certificates"
    problems = _sshd.refusals(have, key.split()[0], by_certificate) if key else ["sshd has no readable host key"]
    trusted = blob(read(CA_FILE))
    if trusted and trusted != blob(request["authority"]) and not request["replace_authority"]:
        problems.append(
            "it trusts another authority than that in ssh_trust_ca_dir; correct it or set ssh_trust_ca_replace"
        )
    wanted = certificates(request, key, links)
    reasons = {item["path"]: wrong(item, read(item["path"]), request["authority"], time.time()) for item in wanted}
    work = [{**item, "reason": reasons[item["path"]]} for item in wanted if reasons[item["path"]]]
    strangers = [user for user in request["users"] if not known(user)]
    problems += [f"ssh_trust_users names '{user}', whom the host does not know (getent passwd)" for user in strangers]
    problems += revocations(request, wanted)
    now = set_up(request, have) and _sshd.offered(have)
    digest = hashlib.sha256("".join(map(read, (DROPINS["sshd_config"], _sshd.HOST_CERTIFICATE))).encode()).hexdigest()
    missing, shared = pairs(request)
    active, service, since = _sshd.unit()
    reload = not now or read(STAMP).strip() != digest
    problems += locked_out(request, have, address, since if service and (reload or work) else time.time())
    lists = {user: read(f"{AUTHORIZED}/{user}").strip() for user in request["shared"]}
    return {
        "installed": True,
        "problems": problems,
        "work": work,
        "missing_pairs": missing,
        "shared_pairs": shared,
        "unauthorized": []
        if by_certificate
        else sorted(u for u, text in lists.items() if text != request["shared"][u]),
        "authorized_files": [] if by_certificate else _sshd.authorized_files(address),
        "stale": stale(request, wanted),
        "in_effect": now and not work and not missing and request["authority"] in read(KNOWN_HOSTS),
        "digest": digest,
        "reload": reload,
        "active": active,
        "service": service,
        "ports": have.get("port", ["22"]),
        "host_key": key,
        "host_key_path": path,
        "include": {name: _sshd.includes(read(f"{ETC}/{name}"), dropin) for name, dropin in DROPINS.items()},
        "files": {path: fingerprint(path) for path in (CA_FILE, _sshd.REVOKED, *DROPINS.values(), KNOWN_HOSTS)},
    }
