# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interfaces below sysfs, their addresses, and the one that carries this ssh session; private to this collection."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

MATCHERS = ("name", "mac", "pci", "driver", "rdma")


class BadRequest(ValueError):
    """The wanted state cannot be understood."""


def read(path: Path) -> str:
    """A sysfs attribute, empty where it is missing or cannot be read (speed of a link that is down)."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class Links:
    """The network interfaces below one sysfs root."""

    def __init__(self, sysfs: str = "/sys") -> None:
        self.net = Path(sysfs, "class/net")

    def names(self) -> list[str]:
        ether = "1"
        return sorted(p.name for p in self.net.iterdir() if read(p / "type") == ether)

    def identity(self, name: str) -> dict[str, str]:
        base = self.net / name
        device = base / "device"
        mac = read(base / "bonding_slave/perm_hwaddr") or read(base / "address")
        driver = (device / "driver").resolve().name if (device / "driver").exists() else ""
        return {
            "name": name,
            "mac": mac.lower(),
            "pci": device.resolve().name if device.exists() else "",
            "driver": driver,
            "rdma": str((device / "infiniband").exists() or name in self.rdma_parents()),
        }

    def rdma_parents(self) -> list[str]:
        """Interfaces below RDMA devices that are software: these have no PCI function, but name their interface."""
        return [read(p) for p in (self.net.parent / "infiniband").glob("*/parent")]

    def match(self, entry: dict[str, Any]) -> list[str]:
        """Interfaces that an entry means. Names may be shell patterns; a bond's MAC does not mean its members."""
        key = matcher(entry)
        wanted = str(entry[key]).lower() if key in ("mac", "pci") else str(entry[key])
        return [n for n in self.names() if fnmatch.fnmatchcase(self.identity(n)[key], wanted)]

    def lower(self, name: str) -> list[str]:
        """Devices that this one sits on: members of a bond, parent of a VLAN or macvlan, ports of a bridge."""
        return sorted(p.name[len("lower_") :] for p in (self.net / name).glob("lower_*"))

    def all_lower(self, name: str) -> list[str]:
        found: list[str] = []
        for low in self.lower(name):
            found += [low, *self.all_lower(low)]
        return found

    def is_up(self, name: str) -> bool:
        return read(self.net / name / "carrier") == "1"

    def mtu(self, name: str) -> int:
        return int(read(self.net / name / "mtu") or 0)


def matcher(entry: dict[str, Any]) -> str:
    keys = [k for k in MATCHERS if entry.get(k)]
    if len(keys) != 1:
        raise BadRequest(f"an interface is named by one of {', '.join(MATCHERS)}, not by {keys or 'none'}: {entry}")
    return keys[0]


def run(*argv: str) -> tuple[int, str, str]:
    # udev starts programs with next to no environment, and messages are compared in English.
    environment = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=environment)
    except FileNotFoundError:
        return 127, "", f"{argv[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]} did not answer within 60 s"
    return done.returncode, done.stdout, done.stderr


def addresses() -> list[dict[str, Any]]:
    """Links with their routable addresses: [{name, mtu, addresses: ["10.0.0.1/24"]}]."""
    out = run("ip", "-j", "addr", "show")[1]
    links = []
    for link in json.loads(out or "[]"):
        found = [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if a.get("scope") == "global"]
        if found and link.get("ifname") != "lo":
            links.append({"name": link["ifname"], "mtu": link.get("mtu", 0), "addresses": found})
    return links


def connection_address(proc: str = "/proc") -> str:
    """The local address of the ssh session that started this program; empty when there is none.

    sudo drops SSH_CONNECTION, so the environments of the parents are asked as well.
    """
    pid = os.getpid()
    while pid > 1:
        try:
            environ = Path(proc, str(pid), "environ").read_bytes().split(b"\0")
            status = Path(proc, str(pid), "status").read_text()
        except OSError:
            return ""
        for item in environ:
            if item.startswith(b"SSH_CONNECTION="):
                words = item.split(b"=", 1)[1].decode().split()
                return words[2] if len(words) == 4 else ""
        parent = re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)
        pid = int(parent.group(1)) if parent else 0
    return ""


def connection_links(links: Links) -> list[str]:
    """The interface of the ssh session, and everything below it."""
    local = connection_address()
    for link in addresses() if local else []:
        if local in [a.split("/")[0] for a in link["addresses"]]:
            return [link["name"], *links.all_lower(link["name"])]
    return []
