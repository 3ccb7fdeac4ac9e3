# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which MTU the owner of an interface states in its own configuration; private to this collection.

networkd, netplan (through networkd), NetworkManager and ifupdown set it again whenever they configure the link, so a
value that differs from ours would come back.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, NamedTuple, Optional

Run = Callable[..., "tuple[int, str, str]"]


class Stated(NamedTuple):
    owner: str
    where: str
    mtu: int


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def setting(text: str, key: str) -> str:
    """The last value of a key in a file of KEY=VALUE lines."""
    found = re.findall(rf"^\s*{re.escape(key)}\s*=\s*(\S+)", text, re.MULTILINE)
    return found[-1] if found else ""


def number(text: str) -> int:
    """Bytes, with systemd's suffixes; 0 where it is no number (NetworkManager writes 0 or nothing for "leave it")."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)] if match else 0


def networkd(root: Path, index: str) -> Optional[Stated]:
    file = setting(read(root / "run/systemd/netif/links" / index), "NETWORK_FILE")
    if not file:
        return None
    name = Path(file).name
    folders = ("usr/lib/systemd/network", "run/systemd/network", "etc/systemd/network")
    extra = {p.name: p for folder in folders for p in (root / folder / f"{name}.d").glob("*.conf")}
    mtu, where = 0, file
    for path in [root / file.lstrip("/"), *(extra[key] for key in sorted(extra))]:
        value = number(setting(read(path), "MTUBytes"))
        if value:
            mtu, where = value, "/" + str(path.relative_to(root))
    if not mtu:
        return None
    if name.startswith("10-netplan-"):
        return Stated("netplan", "/etc/netplan", mtu)
    return Stated("systemd-networkd", where, mtu)


def network_manager(root: Path, index: str) -> Optional[Stated]:
    uuid = setting(read(root / "run/NetworkManager/devices" / index), "connection-uuid")
    for folder in ("etc/NetworkManager/system-connections", "run/NetworkManager/system-connections"):
        for path in sorted((root / folder).glob("*")) if uuid else []:
            text = read(path)
            if setting(text, "uuid") == uuid and number(setting(text, "mtu")):
                return Stated("NetworkManager", "/" + str(path.relative_to(root)), number(setting(text, "mtu")))
    return None


def ifupdown(link: str, run: Run) -> Optional[Stated]:
    rc, out, _error = run("ifquery", link)
    match = re.search(r"^mtu: (\d+)", out, re.MULTILINE)
    return Stated("ifupdown", "/etc/network/interfaces", int(match.group(1))) if rc == 0 and match else None


def stated_mtu(link: str, run: Run, root: str = "/") -> Optional[Stated]:
    """What the owner of a link says, None where nobody states an MTU."""
    index = read(Path(root, "sys/class/net", link, "ifindex")).strip()
    base = Path(root)
    return (networkd(base, index) or network_manager(base, index) if index else None) or ifupdown(link, run)


def conflicts(wanted: dict[str, int], run: Run, root: str = "/") -> list[str]:
    """One sentence for each link whose owner states another MTU than the wanted one."""
    found = []
    for link, mtu in wanted.items():
        stated = stated_mtu(link, run, root)
        if stated and stated.mtu != mtu:
            says = f"{stated.owner} sets MTU {stated.mtu} ({stated.where})"
            found.append(f"{link}: {says}; set {mtu} there, or it returns")
    return found
