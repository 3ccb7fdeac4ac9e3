# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller remembers of its hosts, and what a change asks of the daemons. Private."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_conf as conf

# From this release on `scontrol reconfigure` starts the daemons anew, with everything but ports and authentication.
REEXEC = (23, 11)
_ALWAYS = "authtype authinfo credtype slurmctldport slurmdport slurmuser"
# Before it, these are read at the start only: by the controller and slurmd …
_BOTH = """
accountingstoragehost accountingstorageport accountingstoragetype clustername communicationparameters grestypes
jobacctgathertype jobcomptype mpiparams plugindir proctracktype selecttype selecttypeparameters slurmctldhost
slurmdspooldir switchtype taskplugin topologyplugin
"""
# … and by the controller alone. Of nodename, each slurmd minds only its own line.
_CONTROLLER = (
    "accountingstoragetres nodename preempttype prioritytype schedulertype slurmctldparameters statesavelocation"
)
ALWAYS = frozenset(_ALWAYS.split())
AT_SLURMD_START = ALWAYS | frozenset(_BOTH.split())
AT_START = AT_SLURMD_START | frozenset(_CONTROLLER.split())
# Feature releases up to the one after which they come each May and November, and how far slurmd may lag behind.
RELEASES = [(20, 2), (20, 11), (21, 8), (22, 5), (23, 2), (23, 11), (24, 5), (24, 11)]
SPAN = 2
# Jobs in the queue or on nodes would be lost.
UNMOVABLE = ("statesavelocation", "slurmdspooldir")


class Refused(Exception):
    """The inventory and the hosts contradict one another, or a change would lose jobs."""


def empty() -> dict[str, Any]:
    return {"controllers": {}, "databases": {}, "nodes": {}, "since": {"slurmctld": 0, "slurmd": 0}}


def merge(
    state: dict[str, Any],
    hosts: dict[str, dict[str, Any]],
    *,
    controllers: list[str],
    databases: list[str],
    nodes: list[str],
    removal_allowed: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The state with what this run saw, and one sentence for everything that was kept instead.

    Hosts that this run did not contact keep their records. Hosts that left the inventory stay until removal is allowed.
    """
    notes: list[str] = []
    new = {**empty(), **state}
    for part, members in (("controllers", controllers), ("databases", databases)):
        known = {**new[part], **{name: _server(hosts[name]) for name in members if name in hosts}}
        new[part] = {name: known[name] for name in members if name in known}
    new["nodes"] = dict(new["nodes"])
    belonging = set(nodes)
    for name, host in hosts.items():
        if name in belonging and host["node"].get("sockets"):
            new["nodes"][name] = _record(host, new["nodes"].get(name), notes, name)
    current = {name: new["nodes"][name] for name in nodes if name in new["nodes"]}
    _no_twins(current)
    taken = {record["node"]["name"] for record in current.values()}
    for name, record in new["nodes"].items():
        if name in current or record["node"]["name"] in taken or removal_allowed:
            continue
        current[name] = record
        notes.append(
            f"{record['node']['name']} is no longer in the inventory; "
            "it stays in slurm.conf until slurm_node_removal_allowed is true"
        )
    new["nodes"] = current
    return new, notes


def _server(host: dict[str, Any]) -> dict[str, str]:
    return {"name": host["node"]["name"], "address": host.get("address") or ""}


def _record(host: dict[str, Any], old: Optional[dict[str, Any]], notes: list[str], name: str) -> dict[str, Any]:
    seen = host["node"]
    node = {key: seen[key] for key in ("name", "cpus", "sockets", "cores", "threads", "real_memory", "gres")}
    if old and not seen.get("gpus_complete", True) and len(old["node"]["gres"]) > len(node["gres"]):
        # A GPU that fell off the bus today is a sick node, not a smaller one: Slurm drains it by the count.
        node["gres"] = old["node"]["gres"]
        notes.append(f"{name}: {seen.get('note')}; slurm.conf keeps the {len(node['gres'])} GPUs that were seen before")
    record = {"address": host.get("address") or "", "options": host.get("options") or {}, "node": node}
    record["switch"] = host.get("switch") or ""
    return {**record, "since": old["since"] if old else 0}


def _no_twins(nodes: dict[str, dict[str, Any]]) -> None:
    seen: dict[str, str] = {}
    for name, record in nodes.items():
        other = seen.setdefault(record["node"]["name"], name)
        if other != name:
            raise Refused(
                f"{other} and {name} have the same short host name {record['node']['name']}: Slurm needs one each"
            )


def leaving(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """NodeNames that the new state has no more."""
    staying = {record["node"]["name"] for record in new["nodes"].values()}
    return [r["node"]["name"] for r in old.get("nodes", {}).values() if r["node"]["name"] not in staying]


def refuse_leaving(names: list[str], jobs: list[str]) -> None:
    """Raise when nodes that leave slurm.conf still have jobs."""
    if jobs:
        raise Refused(
            f"{', '.join(names)} would leave slurm.conf while jobs run there ({', '.join(jobs[:10])}). "
            "Drain and wait, as the playbook remove_nodes does"
        )


def changed_keys(old: str, new: str) -> set[str]:
    before, after = conf.parse(old), conf.parse(new)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def mark(
    old_state: dict[str, Any],
    new_state: dict[str, Any],
    *,
    keys: set[str],
    cgroup_changed: bool,
    version: str,
    now: int,
) -> None:
    """Note in the new state since when the daemons have to have been started. An interrupted run is so made up for."""
    reexec = conf.release(version) >= REEXEC
    since = dict(new_state["since"])
    if keys & (ALWAYS if reexec else AT_START):
        since["slurmctld"] = now
    if keys & (ALWAYS if reexec else AT_SLURMD_START) or (cgroup_changed and not reexec):
        since["slurmd"] = now
    new_state["since"] = since
    if reexec:
        return
    for name, record in new_state["nodes"].items():
        before = old_state.get("nodes", {}).get(name)
        if before and before["node"] != record["node"]:
            record["since"] = now


def refuse_skew(version: str, hosts: dict[str, dict[str, Any]]) -> None:
    """Raise when daemons would not understand one another: slurmdbd is the newest, then slurmctld, then slurmd."""
    own = _position(version)
    for name, host in hosts.items():
        database = host.get("database_version") or version
        if database == "0":  # slurmdbd does not say its release before it has a configuration
            database = version
        if not 0 <= _position(database) - own <= SPAN:
            raise Refused(
                f"{name} has slurmdbd {database}, the controller slurmctld {version}: slurmdbd may be up to "
                f"{SPAN} releases newer than slurmctld, never older. Upgrade slurmdbd first"
            )
        node = host.get("version") or version
        if not 0 <= own - _position(node) <= SPAN:
            raise Refused(
                f"{name} has Slurm {node}, the controller {version}: slurmd may be up to {SPAN} releases older than "
                "slurmctld, never newer. Bring the hosts to one release of their distribution"
            )


def _position(version: str) -> int:
    """Number of a release in Slurm's history. Releases after the listed ones come every six months."""
    release = conf.release(version)
    if release in RELEASES:
        return RELEASES.index(release)
    return len(RELEASES) + (release[0] - 24) * 2 + (release[1] > 5) - 2


def refuse_moves(old: str, new: str, jobs: int) -> None:
    """Raise when a directory changes while there are jobs."""
    before, after = conf.parse(old), conf.parse(new)
    for key in UNMOVABLE:
        if jobs and key in before and before[key] != after.get(key):
            raise Refused(
                f"{key} changes from {before[key]} to {after.get(key)} while {jobs} jobs are in the queue: "
                "they would be lost. Drain the cluster first"
            )


def refuse_rename(options: dict[str, str], read: Callable[[str], str]) -> None:
    """Raise when the state directory belongs to a cluster of another name: slurmctld would refuse to start on it."""
    directory = options.get("statesavelocation", "")
    name, present = options.get("clustername", ""), read(f"{directory}/clustername").partition("|")[0].strip()
    if present and present.lower() != name.lower():
        raise Refused(
            f"slurm_cluster_name is {name!r}, but {directory} holds the jobs and the state of the cluster {present!r}. "
            "Keep that name, or give slurm_state_directory another place"
        )
