# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm says of itself as metrics in Prometheus' text format; private to this collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone

from ._gpu_metrics import Page
from ._slurm_drain import Node

HELP = {
    "slurm_up": "1 where slurmctld answers",
    "slurm_nodes": "Nodes by standing: idle, busy, out (down or drained), other",
    "slurm_gpus": "GPUs of all nodes",
    "slurm_gpus_used": "GPUs that jobs have been given",
    "slurm_jobs": "Jobs by state",
    "slurm_oldest_waiting_seconds": "Seconds since the submission of the oldest job that waits for resources",
}
QUEUE = "%T|%r|%V"
STANDINGS = ("idle", "busy", "out", "other")
STATES = ("pending", "running")
# Who waits for one of these waits for nodes; all other reasons are the job's own, or its user's limits.
FOR_RESOURCES = frozenset({"Resources", "Priority", "None", "Nodes required for job are DOWN, DRAINED or reserved"})


def standing(node: Node) -> str:
    if node.out:
        return "out"
    if node.working:
        return "busy"
    return "idle" if node.states[:1] == ("IDLE",) else "other"


def render(up: bool, nodes: Iterable[Node] = (), queue: str = "", now: str = "") -> str:
    """The page. ``queue`` are lines of `squeue --noheader --array --format=QUEUE`, ``now`` the time as they have it."""
    page = Page(HELP)
    page.add("slurm_up", up)
    if not up:
        return page.text()
    nodes = list(nodes)
    count = Counter(standing(node) for node in nodes)
    for name in STANDINGS:
        page.add("slurm_nodes", count[name], standing=name)
    page.add("slurm_gpus", sum(node.gpus for node in nodes))
    page.add("slurm_gpus_used", sum(node.gpus_used for node in nodes))
    rows = [[*line.strip().split("|"), "", ""][:3] for line in queue.splitlines() if line.strip()]
    states = Counter(row[0].lower() for row in rows)
    for name in dict.fromkeys([*STATES, *sorted(states)]):
        page.add("slurm_jobs", states[name], state=name)
    waiting = [seconds(when) for state, reason, when in rows if state == "PENDING" and reason in FOR_RESOURCES]
    page.add("slurm_oldest_waiting_seconds", max([0, *(seconds(now) - when for when in waiting if when)]))
    return page.text()


def seconds(text: str) -> int:
    """A time without a zone, 2026-01-31T10:00:00, as seconds; 0 where it is none. Only differences mean something."""
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        return 0
