# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of /etc/nccl.conf that facts prove, each with its reason; private to this collection.

Pure: takes links ([{name, mtu, addresses}]), the facts of fabric_facts, and the PCI paths of the GPUs.
NCCL reads the file line by line and takes everything before the first "=" as a name, in old releases in comments too;
so no comment here holds that sign, and no value ends in a blank.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from typing import Any, NamedTuple

Fabric = dict[str, Any]
VIRTUAL = re.compile(r"(docker|virbr|br-|cni|veth|podman|lxc|cali|flannel|tailscale|wg)")


class Undecided(ValueError):
    """The options do not fit this host; the message says which variable to set."""


class Line(NamedTuple):
    name: str
    value: str
    reason: str


class Port(NamedTuple):
    """An active port of an RDMA device."""

    device: str
    number: int
    layer: str
    rate: float
    pci: str
    gids: list[tuple[int, ipaddress.IPv6Address]]  # routable RoCE v2 entries: index, GID

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


def routable(text: str) -> bool:
    address = ipaddress.ip_interface(text).ip
    return not (address.is_link_local or address.is_loopback)


def socket_line(links: list[dict[str, Any]], subnet: str, default_route: str, exact: bool) -> Line:
    """The interface for NCCL's bootstrap and its TCP traffic."""
    links = [{**link, "addresses": [a for a in link["addresses"] if routable(a)]} for link in links]
    links = [link for link in links if link["addresses"]]
    shown = ", ".join(f"{link['name']} {' '.join(link['addresses'])}" for link in links) or "none"
    if subnet:
        network = ipaddress.ip_network(subnet)
        found = [k["name"] for k in links if any(ipaddress.ip_interface(a).ip in network for a in k["addresses"])]
        if len(found) != 1:
            raise Undecided(
                f"infiniband_socket_subnet {subnet} must hold an address of exactly one interface, and holds "
                f"{', '.join(found) or 'none'} (addresses: {shown})"
            )
        name, reason = found[0], f"the only interface with an address in {subnet}"
    else:
        real = [link["name"] for link in links if not VIRTUAL.match(link["name"])]
        if default_route in real:
            name, reason = default_route, "the interface of the default route; infiniband_socket_subnet chooses another"
        elif len(real) == 1:
            name, reason = real[0], "the only interface with an address that other hosts can reach"
        else:
            raise Undecided(
                f"no interface can be told from the others (addresses: {shown}); set infiniband_socket_subnet"
            )
    return Line("NCCL_SOCKET_IFNAME", f"={name}" if exact else name, reason)


def active_ports(fabric: Fabric) -> list[Port]:
    ports = []
    for device in fabric.get("rdma") or []:
        for port in device.get("ports") or []:
            if str(port.get("state")).lower() == "active":
                layer, rate = str(port.get("link_layer")).lower(), float(port.get("rate_gbps") or 0)
                ports.append(Port(device["name"], port["port"], layer, rate, device.get("pci") or "", v2_gids(port)))
    # By slot, which is the same on all hosts of one kind; names are handed out in the order of discovery.
    return sorted(ports, key=lambda p: (p.pci == "", p.pci, p.device, p.number))


def v2_gids(port: dict[str, Any]) -> list[tuple[int, ipaddress.IPv6Address]]:
    """Entries that can be routed: an index that holds a link-local address works to the next switch at most."""
    found = []
    for entry in port.get("gids") or []:
        try:
            gid = ipaddress.IPv6Address(entry["gid"])
        except ValueError:
            continue
        local = gid.ipv4_mapped.is_link_local if gid.ipv4_mapped else gid.is_link_local
        if "v2" in str(entry.get("type")).lower() and not local and int(gid) != 0:
            found.append((int(entry["index"]), gid))
    return found


def shares_switch(path: str, others: list[str]) -> bool:
    """Whether a PCI path meets one of the others below the host bridge: at a root port or a switch."""

    def below_bridge(text: str) -> list[str]:
        parts = text.split("/")
        start = next((i for i, part in enumerate(parts) if re.match(r"pci[0-9a-f]{4,}:", part)), len(parts))
        return parts[start + 1 :]

    own = below_bridge(path)
    return bool(own) and any(own[:1] == below_bridge(other)[:1] for other in others)


def in_networks(gid: ipaddress.IPv6Address, networks: list[str]) -> bool:
    return any((gid.ipv4_mapped or gid) in ipaddress.ip_network(network) for network in networks)


class Choice:
    """Ports that stay after each filter, and the sentences that say which left and why."""

    def __init__(self, ports: list[Port]) -> None:
        self.ports, self.left = ports, list[str]()

    def keep(self, wanted: list[Port], reason: str) -> None:
        """Keeps the wanted ones, unless that would be none."""
        gone = [p.name for p in self.ports if p not in wanted]
        if wanted and gone:
            self.ports = wanted
            self.left.append(f"without {', '.join(gone)}: {reason}")


def choose(
    ports: list[Port],
    paths: dict[str, str],
    gpus: list[str],
    include: list[str],
    exclude: list[str],
    subnets: list[str],
) -> Choice:
    """The ports that carry the collectives. Include and exclude are names of devices, with or without a port."""

    def named(port: Port, names: list[str]) -> bool:
        return port.device in names or port.name in names

    choice = Choice(ports)
    if include:
        choice.keep([p for p in ports if named(p, include)], "not in infiniband_hcas")
        return choice
    choice.keep([p for p in choice.ports if not named(p, exclude)], "in infiniband_hcas_excluded")
    choice.keep([p for p in choice.ports if p.layer == "infiniband"], "Ethernet beside InfiniBand")
    if subnets:
        # Of a port's addresses only those count from here on: an index must be that of one of them.
        inside = [p._replace(gids=[g for g in p.gids if in_networks(g[1], subnets)]) for p in choice.ports]
        if any(p.gids for p in inside):
            choice.ports = inside
            choice.keep([p for p in inside if p.gids], "no address in infiniband_hca_subnets")
    if all(p.layer == "ethernet" for p in choice.ports):
        choice.keep([p for p in choice.ports if p.gids], "no address that can be routed")
    near = [p for p in choice.ports if shares_switch(paths.get(p.pci, ""), gpus)]
    choice.keep(near, "no GPU below the same PCIe root port")
    fastest = max((p.rate for p in choice.ports), default=0.0)
    choice.keep([p for p in choice.ports if p.rate == fastest], f"slower than {fastest:g} Gb/s")
    return choice


def hca_lines(choice: Choice, gid_index: bool, classes: dict[str, int] | None = None) -> tuple[list[Line], list[str]]:
    """The lines for the chosen ports, and what facts could not prove. Classes: those of connections, by port."""
    ports, skipped = choice.ports, []
    if not ports:
        return [], []
    reason = "; ".join(["active ports, in the order of their slots", *choice.left])
    lines = [Line("NCCL_IB_HCA", "=" + ",".join(p.name for p in ports), reason)]
    roce = [p for p in ports if p.layer == "ethernet"]
    if roce and all(p.gids and not any(g.ipv4_mapped for _index, g in p.gids) for p in roce):
        lines.append(Line("NCCL_IB_ADDR_FAMILY", "AF_INET6", "the ports have IPv6 addresses only; NCCL looks for IPv4"))
    if roce and gid_index:
        common = set.intersection(*({i for i, _gid in p.gids} for p in roce))
        by_v4 = Counter(i for p in roce for i, g in p.gids if g.ipv4_mapped)
        if common:
            index = min(common, key=lambda i: (-by_v4[i], i))
            lines.append(Line("NCCL_IB_GID_INDEX", str(index), "a routable RoCE v2 entry on each of these ports now"))
        else:
            skipped.append("NCCL_IB_GID_INDEX: the ports have no routable RoCE v2 entry at one common index")
    known = {(classes or {}).get(p.name, 0) for p in roce}
    if len(known) == 1 and known != {0}:
        # NCCL makes its connections without the connection manager, so that its class is told again.
        lines.append(
            Line("NCCL_IB_TC", str(known.pop()), "the traffic class that RDMA connections have on these ports")
        )
    return lines, skipped


def render(lines: list[Line], header: str) -> str:
    """The file's text."""
    text = f"# {header}\n"
    for line in lines:
        text += f"\n# {line.reason.replace('=', ' ')}\n{line.name}={line.value}\n"
    return text
