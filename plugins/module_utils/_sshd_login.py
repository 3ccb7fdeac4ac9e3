# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether sshd's settings let a user in with a key, said only where it is sure. Private to this collection."""

from __future__ import annotations

import grp
import ipaddress
import os
import pwd
import re
from collections.abc import Iterable

from ansible_collections.gpuops.cluster.plugins.module_utils import _sshd

Settings = dict[str, list[str]]


def alike(pattern: str, text: str) -> bool:
    """sshd's patterns: * and ? alone."""
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text))


def from_there(pattern: str, address: str) -> bool | None:
    """Whether a pattern of hosts holds for an address; None where only a name could tell."""
    try:
        if "/" in pattern:
            return ipaddress.ip_address(address) in ipaddress.ip_network(pattern, strict=False)
        ipaddress.ip_address(address)
    except ValueError:
        return None
    if alike(pattern, address):
        return True
    return False if re.fullmatch(r"[0-9a-fA-F.:*?]+", pattern) else None


def listed(pattern: str, user: str, address: str) -> bool | None:
    """Whether a word of AllowUsers or DenyUsers, user or user@host, names this login."""
    name, at, host = pattern.rpartition("@")
    if not at:
        return alike(pattern, user)
    return from_there(host, address) if alike(name, user) else False


def groups(user: str, gid: int) -> list[str]:
    found = []
    for number in os.getgrouplist(user, gid):
        try:
            found.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return found


def not_listed(user: str, own: Iterable[str], have: Settings, address: str) -> tuple[str, str]:
    """Which list of users or groups keeps a user out."""
    keywords = ("AllowUsers", "DenyUsers", "AllowGroups", "DenyGroups")
    allow, deny, groups_in, groups_out = (" ".join(have.get(keyword.lower(), [])).split() for keyword in keywords)
    out = (
        bool(allow) and all(listed(word, user, address) is False for word in allow),
        any(listed(word, user, address) is True for word in deny),
        bool(groups_in) and not any(alike(word.lstrip("!"), group) for word in groups_in for group in own),
        any(alike(word, group) for word in groups_out for group in own),
    )
    lists = zip(out, keywords, (allow, deny, groups_in, groups_out))
    return next(((keyword, " ".join(words)) for true, keyword, words in lists if true), ("", ""))


def shut(user: str, own: Iterable[str], have: Settings, address: str) -> tuple[str, str]:
    """The keyword, and its value, that keeps a user of these groups out; two empty words where none surely does."""
    root = have.get("permitrootlogin", [""])[0]
    if user == "root" and root in ("no", "forced-commands-only"):
        return "PermitRootLogin", root
    if have.get("pubkeyauthentication") == ["no"]:
        return "PubkeyAuthentication", "no"
    ways = " ".join(have.get("authenticationmethods", ["any"]))
    if not {"any", "publickey"} & set(ways.split()):
        return "AuthenticationMethods", ways
    return not_listed(user, own, have, address)


def hidden(have: Settings, general: Settings, certificates: bool) -> tuple[str, str]:
    """A Match block that takes another value than all others have for what our drop-in sets."""
    keyword = "TrustedUserCAKeys" if certificates else "AuthorizedKeysFile"
    ours = _sshd.CA_FILE if certificates else f"{_sshd.AUTHORIZED}/%u"
    mine = " ".join(have.get(keyword.lower(), []))
    if ours in mine.split() or mine == " ".join(general.get(keyword.lower(), [])):
        return "", ""
    return keyword, mine


def refused(user: str, address: str, general: Settings, certificates: bool) -> str:
    """Why sshd does not let a user in from an address with what we set up; empty where nothing says so."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return ""
    have, trouble = _sshd.effective(user, address, general.get("port", ["22"])[0])
    if trouble:
        return trouble
    own = groups(user, entry.pw_gid)
    keyword, value = shut(user, own, have, address)
    if not keyword:
        keyword, value = hidden(have, general, certificates)
    return f"{keyword} {value} (in {_sshd.who_sets(keyword)})" if keyword else ""
