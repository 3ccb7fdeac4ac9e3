# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judging what the scheduler says of nodes and of a trial job. Pure. Private to the collection."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Optional

# Base states of sinfo's %T, its suffixes cut off.
BUSY = frozenset({"allocated", "mixed", "completing", "comp"})
HELD = frozenset(
    {"drained", "draining", "drain", "maint", "reserved", "planned", "powering_down", "powered_down", "reboot"}
)
_UNFIT = re.compile(r"\bgres\b|^low |invalid|not responding|mismatch|configured", re.IGNORECASE)

_FULL = "SlurmdSpoolDir is full"  # which slurmd says as root


def parse_nodes(text: str) -> dict[str, dict[str, Any]]:
    """Lines of `sinfo -h -N -o %N|%T|%P|%u|%E`, one for each node and partition, by node."""
    nodes: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        name, state, partition, user, reason = [*line.split("|", 4), "", "", "", ""][:5]
        found = {"state": state.strip(), "partitions": [], "user": user.strip(), "reason": reason.strip()}
        node = nodes.setdefault(name.strip(), found)
        node["partitions"].append(partition.strip().rstrip("*"))
    return nodes


def unfit(node: dict[str, Any]) -> bool:
    """Whether Slurm drained the node because it lacks what slurm.conf says, or room. That is no one's decision."""
    return node["reason"] == _FULL or (node["user"] == "slurm" and bool(_UNFIT.search(node["reason"])))


def standing(node: Optional[dict[str, Any]]) -> str:
    """One of "idle", "busy", "held" (somebody's decision), "waiting" (not registered yet, or silent), "bad"."""
    if node is None:
        return "bad"
    state = node["state"].lower()
    base = re.sub(r"[*~#!%$@+^-]+$", "", state)
    if base in HELD:
        return "bad" if unfit(node) else "held"
    if state.endswith("*"):
        return "waiting"
    if base in BUSY:
        return "busy"
    return "idle" if state == "idle" else "waiting"


def groups(names: list[str], nodes: dict[str, dict[str, Any]], gpus: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    """Jobs that together take every GPU of idle nodes once: one for each partition and set of GPUs."""
    # The partition that holds most of them, so that one job spans as many nodes as it can.
    size = Counter(partition for name in names for partition in nodes[name]["partitions"])
    found: dict[tuple[Any, ...], list[str]] = {}
    for name in names:
        partition = max(nodes[name]["partitions"], key=lambda each: size[each])
        found.setdefault((partition, tuple(gpus.get(name, {}).items())), []).append(name)
    return [{"partition": key[0], "gpus": dict(key[1]), "nodes": members} for key, members in found.items()]


def judge(group: dict[str, Any], output: str) -> tuple[str, list[str]]:
    """Job id and complaints for the lines verify|JOB|NODE|GPUS|VISIBLE that a group's tasks printed."""
    rows = [line.strip().split("|")[1:] for line in output.splitlines() if line.strip().startswith("verify|")]
    wanted, problems = sum(group["gpus"].values()), []
    seen = {row[1] for row in rows}
    problems += [f"{name}: no task of the job ran there" for name in group["nodes"] if name not in seen]
    for _job, name, granted, visible in rows:
        for label, text in (("SLURM_STEP_GPUS", granted), ("CUDA_VISIBLE_DEVICES", visible)):
            numbers = [part for part in text.split(",") if part]
            if wanted and (len(numbers) != wanted or len(set(numbers)) != wanted):
                problems.append(f"{name}: {label} is '{text}', expected {wanted} different GPUs")
    return (rows[0][0] if rows else ""), problems


def judge_accounting(group: dict[str, Any], output: str) -> str:
    """Complaint about a line of `sacct -nPX -o State,AllocTRES,NNodes`; empty when the record is complete."""
    line = output.strip().splitlines()[0] if output.strip() else ""
    if not line:
        return "sacct has no record of the job"
    state, tres, count = [*line.split("|"), "", ""][:3]
    amounts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    wanted = sum(group["gpus"].values()) * len(group["nodes"])
    if state != "COMPLETED" or count != str(len(group["nodes"])):
        return f"sacct says state {state} on {count} nodes, expected COMPLETED on {len(group['nodes'])}"
    if wanted and amounts.get("gres/gpu") != str(wanted):
        return f"sacct counts gres/gpu={amounts.get('gres/gpu', '0')}, expected {wanted}"
    return ""
