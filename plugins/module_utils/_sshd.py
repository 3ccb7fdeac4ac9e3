# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's sshd does, asked from sshd itself, and what stands in our way. Private to this collection."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import shutil
import tempfile
import time

from ansible_collections.gpuops.cluster.plugins.module_utils import _command
from ansible_collections.gpuops.cluster.plugins.module_utils._host_questions import read

ETC = "/etc/ssh"
CONFIG = f"{ETC}/sshd_config"
CA_FILE, HOST_CERTIFICATE = f"{ETC}/ssh_trust_ca.pub", f"{ETC}/ssh_trust_host-cert.pub"
REVOKED = f"{ETC}/ssh_trust_revoked.krl"
AUTHORIZED = f"{ETC}/ssh_trust_authorized"  # plain keys, one file a user
DROPINS = {name: f"{ETC}/{name}.d/05-ssh-trust.conf" for name in ("sshd_config", "ssh_config")}
KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
SBIN = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
TIMEOUT = 60.0
NOBODY = "ssh-trust-nobody"  # whom no Match block names


def run(tool: str, *argv: str) -> _command.Answer:
    return _command.run([shutil.which(tool, path=SBIN) or tool, *argv], TIMEOUT)


def stdout(tool: str, *argv: str) -> str:
    return run(tool, *argv).stdout.decode("utf-8", "replace")


def connection(user: str, address: str, port: str) -> str:
    """A connection for sshd -T -C. All of it: a Match block that asks for what is missing is an error."""
    return f"user={user},host={address},addr={address},laddr={address},lport={port},rdomain="


def settings(text: str) -> dict[str, list[str]]:
    """What `sshd -T` prints: lower-case keyword to its values, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _unused, value = line.partition(" ")
        found.setdefault(word.lower(), []).append(value.strip())
    return found


def effective(user: str, address: str, port: str = "22", config: str = CONFIG) -> tuple[dict[str, list[str]], str]:
    """Settings for a login from an address, and sshd's words if it refuses the configuration."""
    answer = run("sshd", "-T", "-f", config, "-C", connection(user, address, port))
    if answer.rc == 0:
        return settings(answer.stdout.decode("utf-8", "replace")), ""
    return {}, answer.failure or answer.stderr.decode("utf-8", "replace").strip()


def included(line: str) -> list[str]:
    """The patterns of an Include line, absolute; empty where it is none."""
    words = line.replace("=", " ", 1).split()
    return [os.path.join(ETC, word) for word in words[1:]] if words and words[0].lower() == "include" else []


def includes(config: str, dropin: str) -> bool:
    """Whether a client or server configuration reads the drop-in before its first Match or Host block."""
    for line in config.splitlines():
        words = line.replace("=", " ").split()
        if words and words[0].lower() in ("match", "host"):
            return False
        if any(fnmatch.fnmatch(dropin, pattern) for pattern in included(line)):
            return True
    return False


def without(config: str, dropin: str) -> str:
    """A server configuration that reads all that it reads now, but not the drop-in."""
    lines = []
    for line in config.splitlines():
        patterns = included(line)
        files = [path for pattern in patterns for path in sorted(glob.glob(pattern)) if path != dropin]
        lines += [f"Include {path}" for path in files] if patterns else [line]
    return "".join(f"{line}\n" for line in lines)


def authorized_files(address: str) -> list[str]:
    """AuthorizedKeysFile as it is without our drop-in, which names its files before ours."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
        file.write(without(read(CONFIG), DROPINS["sshd_config"]))
        file.flush()
        have, _refused = effective(NOBODY, address, config=file.name)
    words = " ".join(have.get("authorizedkeysfile", [])).split()
    return [word for word in words if word not in ("none", f"{AUTHORIZED}/%u")]


def who_sets(keyword: str) -> str:
    """The files below /etc/ssh that hold a server keyword, for messages."""
    files = [CONFIG, *sorted(glob.glob(f"{CONFIG}.d/*"))]
    return ", ".join(path for path in files if re.search(rf"(?im)^\s*{keyword}\b", read(path))) or "built in"


def refusals(have: dict[str, list[str]], kind: str, certificates: bool) -> list[str]:
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

    others("HostCertificate", HOST_CERTIFICATE, "it would hide ours; remove it, or do without this role")
    others("RevokedKeys", REVOKED, "ours would take its place; remove it, or do without this role")
    lacks("HostKeyAlgorithms", kind)
    if certificates:
        instead = "or set ssh_trust_mode: keys"
        others("TrustedUserCAKeys", CA_FILE, f"ours would take its place; remove it, {instead}")
        others(
            "AuthorizedPrincipalsFile", "none", f"it does not know the names in our certificates; remove it, {instead}"
        )
        others(
            "AuthorizedPrincipalsCommand",
            "none",
            f"it does not know the names in our certificates; remove it, {instead}",
        )
        lacks("PubkeyAcceptedAlgorithms", "ssh-ed25519")
    return found


def host_key(have: dict[str, list[str]]) -> tuple[str, str]:
    """Path and public key of the best host key that sshd uses; empty where it has none."""
    ranked = []
    for path in have.get("hostkey", []):
        words = (read(f"{path}.pub") or stdout("ssh-keygen", "-y", "-f", path)).split()[:2]
        if words and words[0] in KEY_TYPES:
            ranked.append((KEY_TYPES.index(words[0]), path, " ".join(words)))
    return min(ranked)[1:] if ranked else ("", "")


def offered(have: dict[str, list[str]]) -> bool:
    """Whether the sshd that runs now offers the certificate that lies on the disk; true where none answers here."""
    host, _unused, port = have.get("listenaddress", ["127.0.0.1:22"])[0].rpartition(":")
    host = "::1" if host == "[::]" else host.strip("[]") if host.strip("0.") else "127.0.0.1"
    asked = run("ssh-keyscan", "-c", "-T", "5", "-p", port, host).text()
    return "SSH-2.0" not in asked or read(HOST_CERTIFICATE).split()[1] in asked


def unit() -> tuple[bool, bool, float]:
    """Whether a unit of systemd runs sshd, whether it is one to reload, and when that last read its files.

    Ubuntu starts sshd by ssh.socket; without Accept it is the same ssh.service from the first connection on.
    """
    shown = stdout("systemctl", "show", "ssh.service", "--property=ActiveState,StateChangeTimestampMonotonic")
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    service = values.get("ActiveState") == "active"
    socket = stdout("systemctl", "is-active", "ssh.socket").strip() == "active"
    booted = time.time() - time.monotonic()
    return service or socket, service, booted + int(values.get("StateChangeTimestampMonotonic") or 0) / 1e6


def unread(since: float) -> list[str]:
    """Files of sshd other than ours that were written after sshd read them: a reload would bring them to life."""
    files = [path for path in [CONFIG, *sorted(glob.glob(f"{CONFIG}.d/*.conf"))] if path != DROPINS["sshd_config"]]
    return [path for path in files if os.path.exists(path) and os.stat(path).st_mtime > since]
