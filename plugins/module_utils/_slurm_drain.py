# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose drain it is: nodes as scontrol shows them, and who may drain and resume which. Pure. Private.

One rule for the module slurm_node and the program node_health: a reason that somebody else gave stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

WORKING = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
UNFIT = frozenset({"DOWN", "DRAIN", "FAIL", "UNKNOWN", "NOT_RESPONDING", "INVAL", "POWERED_DOWN", "REBOOT_ISSUED"})
OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
_REASON = re.compile(r" Reason=(.*?) \[([^@\[\]]*)@[^\]]*\](?: |$)")


@dataclass(frozen=True)
class Node:
    """A node as slurmctld sees it."""

    name: str
    states: tuple[str, ...]
    reason: str = ""
    reason_by: str = ""
    partitions: tuple[str, ...] = ()
    cpus: int = 0
    cpus_used: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpus_used: int = 0

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.states

    @property
    def out(self) -> bool:
        """Whether it takes no more jobs by somebody's or Slurm's decision."""
        return bool(OUT & set(self.states))

    @property
    def working(self) -> bool:
        """Whether a job is on it, or just leaving it."""
        return bool(WORKING & set(self.states))

    @property
    def ready(self) -> bool:
        return not UNFIT & set(self.states)


def _field(line: str, name: str) -> str:
    match = re.search(rf"(?:^| ){name}=(\S*)", line)
    return match.group(1) if match else ""


def _gpus(tres: str) -> int:
    match = re.search(r"(?:^|,)gres/gpu=(\d+)", tres)
    return int(match.group(1)) if match else 0


def parse_nodes(text: str) -> dict[str, Node]:
    """Answer of `scontrol --oneliner show node`, by name."""
    nodes = {}
    for line in text.splitlines():
        name = _field(line, "NodeName")
        if not name:
            continue
        reason = _REASON.search(line)
        states = re.split(r"[+]", re.sub(r"[*~#!%$@^-]", "", _field(line, "State").upper()))
        if _field(line, "State").upper().partition("+")[0].endswith("*"):
            states.append("NOT_RESPONDING")
        nodes[name] = Node(
            name=name,
            states=tuple(states),
            reason=reason.group(1).strip() if reason else "",
            reason_by=reason.group(2) if reason else "",
            partitions=tuple(part for part in _field(line, "Partitions").split(",") if part),
            cpus=int(_field(line, "CPUTot") or 0),
            cpus_used=int(_field(line, "CPUAlloc") or 0),
            memory_mib=int(_field(line, "RealMemory") or 0),
            gpus=_gpus(_field(line, "CfgTRES")),
            gpus_used=_gpus(_field(line, "AllocTRES")),
        )
    return nodes


def theirs(node: Node, ours: str, *, prefix: bool = False) -> bool:
    """Whether somebody else took the node out. ``ours`` is our reason, or what our reasons begin with."""
    mine = node.reason.startswith(ours) if prefix else node.reason == ours
    # What slurmctld says of a node that is down ("Not responding") is nobody's decision.
    slurms = not node.drained and node.reason_by in {"slurm", "", "(null)"}
    return node.out and bool(node.reason) and not mine and not slurms


def to_drain(nodes: Iterable[Node], reason: str, *, own: Optional[str] = None, force: bool = False) -> list[str]:
    """Names of those that this reason should take out. ``own``: what older reasons of ours begin with."""
    found = []
    for node in nodes:
        other = theirs(node, own or reason, prefix=own is not None)
        if not (node.drained and node.reason == reason) and (force or not other):
            found.append(node.name)
    return found


def to_resume(nodes: Iterable[Node], own: str, *, prefix: bool = False, force: bool = False) -> list[str]:
    """Names of those that are out for this reason, and for no other."""
    found = []
    for node in nodes:
        mine = node.reason.startswith(own) if prefix else node.reason == own
        if node.out and (force or mine):
            found.append(node.name)
    return found


def kept(nodes: Iterable[Node], reason: str) -> list[str]:
    """Nodes that stay as somebody else left them, one sentence each."""
    return [f"{node.name} is out for another reason: {node.reason}" for node in nodes if theirs(node, reason)]


def unknown(names: Sequence[str], nodes: Mapping[str, Node]) -> str:
    """A sentence about names that are no nodes; empty when all are."""
    strangers = [name for name in names if name not in nodes]
    if not strangers:
        return ""
    some = ", ".join(list(nodes)[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
    return f"Slurm has no node {', '.join(strangers)}; it has {some or 'none'}"


def facts(node: Node) -> dict[str, Any]:
    """As returned by modules."""
    return {
        "states": [state.lower() for state in node.states],
        "reason": node.reason,
        "reason_by": node.reason_by,
        "partitions": list(node.partitions),
        "cpus": node.cpus,
        "cpus_used": node.cpus_used,
        "memory_mib": node.memory_mib,
        "gpus": node.gpus,
        "gpus_used": node.gpus_used,
    }
