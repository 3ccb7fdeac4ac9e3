# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ways NCCL took, from its own log: it falls back from RDMA to sockets without an error."""

from __future__ import annotations

import re
from typing import Any

FOLDER = "/run/nccl-gate"  # root's own on each node: NCCL writes where the name points to
# NCCL's log goes to a file of its own: between nccl-tests' rows it would tear them apart.
LOGGING = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P,SHM",
    "NCCL_DEBUG_FILE": f"{FOLDER}/%h.%p.log",
}
WAYS = "Using network [A-Za-z0-9_-]+|via (P2P|SHM)/[A-Za-z]+"
WAYS += r"|via (NET|COLLNET)/[A-Za-z][A-Za-z0-9 _-]*(/[0-9]+)?(\([0-9]+\))?(/GDRDMA)?"
WAYS += r"|Bootstrap ?: Using ?(\[[0-9]+\] ?)?[A-Za-z0-9._-]+|NVLS multicast support is available"
WAYS += "|NET/(IB|Socket) : Using [^;]+|[0-9]+ coll channels.*"
# One task a node: what its ranks said, counted, and the files removed.
COLLECT = r"""
grep -ohE "$2" "$1"/*.log 2>/dev/null |
  sed -E 's#(via [A-Z0-9]+/[A-Za-z0-9 _-]+)/[0-9]+(\([0-9]+\))?#\1#; s#:[0-9a-fA-F.:%]+<[0-9]+>##g' |
  sort | uniq -c | sed -E 's/^ *([0-9]+) /WAY\t\1\t/'
rm -f "$1"/*.log
"""


def read(text: str) -> dict[str, int]:
    """How often each way was named, over all ranks: {"Using network IB": 16, "via NET/IB/GDRDMA": 128}."""
    ways: dict[str, int] = {}
    for count, way in re.findall(r"WAY\t(\d+)\t(.+)", text):
        ways[way.strip()] = ways.get(way.strip(), 0) + int(count)
    return dict(sorted(ways.items(), key=lambda item: -item[1]))


def fallback(ways: dict[str, int], nodes: dict[str, dict[str, Any]]) -> str:
    """A reason to fail when NCCL took sockets although every node has active RDMA ports; else empty."""
    networks = sorted(way.rpartition(" ")[2] for way in ways if way.startswith("Using network"))
    if "Socket" not in networks or any(node["network"]["kind"] != "rdma" for node in nodes.values()):
        return ""
    others = f" beside {', '.join(name for name in networks if name != 'Socket')}" if len(networks) > 1 else ""
    return (
        f"NCCL used sockets{others} although RDMA ports are active: look at NCCL_IB_HCA, the net plugin and GID index"
    )


def unused_direct(ways: dict[str, int], nodes: dict[str, dict[str, Any]]) -> bool:
    """Whether data went through the hosts' memory although NICs are RDMA devices."""
    remote = [way for way in ways if way.startswith("via NET/IB")]
    rdma = all(node["network"]["kind"] == "rdma" for node in nodes.values())
    return bool(remote) and rdma and not any("GDRDMA" in way for way in remote)


def words(ways: dict[str, int]) -> str:
    """What NCCL's log says of its ways, for people: networks, transports, interfaces, channels."""
    found: dict[str, dict[str, None]] = {}
    for way, count in ways.items():
        what, _space, rest = way.partition(" ")
        if way.startswith("Using network"):
            found.setdefault("network", {})[way.rpartition(" ")[2]] = None
        elif what == "via":
            found.setdefault("transports", {})[f"{rest} ({count})"] = None
        elif way.startswith("Bootstrap"):
            found.setdefault("first contact over", {})[re.split(r"[ \]]", way)[-1]] = None
        elif way.startswith("NET/"):
            found.setdefault("devices", {})[way.partition("Using ")[2].strip()] = None
        elif way.startswith("NVLS"):
            found.setdefault("transports", {})["NVLS"] = None
        else:
            found.setdefault("channels", {})[way.partition(" channels")[0] if "," not in way else way] = None
    return "; ".join(f"{what} {', '.join(list(some)[:6])}" for what, some in found.items())


def look(gate: Any, names: list[str], result: dict[str, Any]) -> None:
    """Add to a result which ways NCCL took; a silent fall-back to sockets makes it a failure."""
    command = ["sh", "-c", COLLECT, "collect", FOLDER, WAYS]
    outcome = gate.run_launches([gate.spec({"names": names}, command, 1, "cluster-ways", timeout=120)])[0]
    gate.save("cluster-ways.log", f"{outcome['stdout']}\n{outcome['stderr']}")
    result["ways"] = read(outcome["stdout"])
    reason = fallback(result["ways"], gate.capabilities(names))
    if unused_direct(result["ways"], gate.capabilities(names)):
        result["flags"] = [*result["flags"], "through_host"]
    if reason:
        result.update(status="fail", reason=reason, flags=[*result["flags"], "socket_fallback"])
