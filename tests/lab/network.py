# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's networks: one bridge a lab, each with a subnet that nothing else on this machine uses."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import firewall
from .paths import LabError
from .podman import Podman

POOL = ipaddress.ip_network("10.89.0.0/16")


def free_subnet(used: Iterable[str]) -> str:
    """The first /24 of the pool that overlaps none of the used networks."""
    taken = [ipaddress.ip_network(net, strict=False) for net in used]
    for candidate in POOL.subnets(new_prefix=24):
        if not any(candidate.overlaps(net) for net in taken if net.version == 4 and net.prefixlen > 0):
            return str(candidate)
    raise LabError(f"no free /24 is left in {POOL}")


def addresses(subnet: str, nodes: int) -> dict[str, str]:
    """Addresses of ctl and n1..nN."""
    network = ipaddress.ip_network(subnet)
    hosts = {"ctl": str(network[10])}
    hosts.update({f"n{index}": str(network[10 + index]) for index in range(1, nodes + 1)})
    return hosts


def used_networks(podman: Podman) -> list[str]:
    """Subnets of podman's networks, of this machine's routes, and where a name server of a past lab still listens."""
    found = [entry["subnet"] for network in _networks(podman) for entry in network.get("subnets", [])]
    routes = json.loads(
        subprocess.run(["ip", "-json", "route"], check=True, capture_output=True, text=True).stdout or "[]"
    )
    listening = name_servers(Path("/proc/net/udp").read_text())
    return [*found, *(route["dst"] for route in routes if route["dst"] != "default"), *listening]


def name_servers(udp: str) -> list[str]:
    """Addresses with a socket on port 53, of /proc/net/udp: the kernel prints addresses as native words, in hex."""
    local = [line.split()[1].split(":") for line in udp.splitlines()[1:]]
    words = [int(address, 16).to_bytes(4, sys.byteorder) for address, port in local if int(port, 16) == 53]
    return [str(ipaddress.ip_address(word)) for word in words if any(word)]


def _networks(podman: Podman) -> list[dict[str, Any]]:
    names = podman.call("network", "ls", "--quiet").stdout.split()
    result: list[dict[str, Any]] = json.loads(podman.call("network", "inspect", *names).stdout)
    return result


def full_name(podman: Podman, name: str) -> str:
    """Unique on this machine: firewall chains are named after the network, whichever cache directory it belongs to."""
    return f"gpuops-{name}-{podman.run_dir.name}"


def create(podman: Podman, name: str) -> str:
    """Make the network of a lab (or of the package cache) and return its subnet."""
    subnet = free_subnet(used_networks(podman))
    podman.call("network", "create", "--subnet", subnet, full_name(podman, name))
    return subnet


def remove(podman: Podman, name: str) -> None:
    """Remove the network, and what killed containers left of it: the bridge and its firewall rules."""
    name = full_name(podman, name)
    if podman.call("network", "exists", name, check=False).returncode:
        return
    description = json.loads(podman.call("network", "inspect", name).stdout)[0]
    podman.call("network", "rm", "-f", name)
    subprocess.run(["ip", "link", "delete", description["network_interface"]], check=False, capture_output=True)
    for subnet in description["subnets"]:
        firewall.drop(subnet["subnet"])
