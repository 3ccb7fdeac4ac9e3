# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of Slurm's files for the cluster, and the one that says where nodes are in the network. Pure. Private."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_conf as conf

# What the packages' own plugstack.conf says.
PACKAGED = "include /etc/slurm/plugstack.conf.d/*.conf"
MPI_CONF = (22, 5)  # the first release that reads mpi.conf


def address(record: dict[str, str]) -> str:
    return record["address"] or record["name"]


def files(params: dict[str, Any], state: dict[str, Any], version: str) -> dict[str, str]:
    """Text by file name, from the module's parameters and what the controller knows of its hosts."""
    records = list(state["nodes"].values())
    servers = [address(record) for record in state["databases"].values()]
    database = {"AccountingStorageHost": servers[0]} if servers else {}
    options = {**database, **params["options"]}
    types = conf.gres_types(options.get("GresTypes"), records)
    slurm = [
        *conf.option_lines({**options, "GresTypes": types}, version),
        *conf.controller_lines(list(state["controllers"].values())),
        "",
        *conf.node_lines(records),
        "",
        *conf.partition_lines(params["partitions"], state["nodes"]),
    ]
    bodies = {
        "slurm.conf": slurm,
        "gres.conf": ["AutoDetect=off", *conf.gres_lines(records)],
        "cgroup.conf": conf.option_lines(params["cgroup"], version),
    }
    if params["topology"].get("kind"):
        bodies["topology.conf"] = topology_lines(params["topology"], records)
    if params.get("plugstack"):
        bodies["plugstack.conf"] = [PACKAGED, *params["plugstack"]]
    if conf.release(version) >= MPI_CONF and (mpi := conf.option_lines(params.get("mpi") or {}, version)):
        bodies["mpi.conf"] = mpi
    return {name: conf.HEADER + "\n".join(lines) + "\n" for name, lines in bodies.items()}


def optional(files: dict[str, str], old: dict[str, str]) -> list[str]:
    """Makes `files` fit what is there (`old`, text by name) of the files that not every cluster has; returns notes.

    What is wanted no more is emptied, not removed: copies elsewhere follow. A file that somebody else wrote stays.
    """
    notes = []
    for name, empty in (("plugstack.conf", f"{PACKAGED}\n"), ("mpi.conf", "")):
        if conf.HEADER in old[name]:
            files.setdefault(name, conf.HEADER + empty)
    if "mpi.conf" in files and old["mpi.conf"].strip() and conf.HEADER not in old["mpi.conf"]:
        del files["mpi.conf"]
        notes.append("slurm_mpi: the controller's mpi.conf is not of this role and stays as it is")
    return notes


def neighbours(text: str) -> dict[str, str]:
    """The switch at the other end of each interface, by its name (or address), from `lldpctl -f json0`."""
    try:
        interfaces = [entry for part in json.loads(text)["lldp"] for entry in part.get("interface", [])]
        found = {}
        for interface in interfaces:
            chassis = interface["chassis"][0]
            found[str(interface["name"])] = str((chassis.get("name") or chassis["id"])[0]["value"])
        return found
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def topology_lines(topology: dict[str, Any], records: Iterable[dict[str, Any]]) -> list[str]:
    """topology.conf from each node's switch (for blocks: its block); ValueError where the tree has a hole or a loop.

    `parents` maps switches to the ones above. Slurm starts no job across parts that nothing joins; `joined` does.
    """
    members: dict[str, list[str]] = {}
    for record in records:
        if not record.get("switch"):
            raise ValueError(f"{record['node']['name']} has no slurm_switch, which slurm_topology needs of every node")
        members.setdefault(record["switch"], []).append(record["node"]["name"])
    if topology["kind"] == "block":
        sizes = ",".join(str(size) for size in topology.get("block_sizes") or [])
        lines = [f"BlockName={name} Nodes={conf.hostlist(nodes)}" for name, nodes in members.items()]
        return lines + ([f"BlockSizes={sizes}"] if sizes else [])
    parents: dict[str, str] = topology.get("parents") or {}
    below: dict[str, list[str]] = {}
    tops: list[str] = []
    switches: dict[str, None] = {}
    level = list(members)
    while level:
        switches.update(dict.fromkeys(level))
        above: dict[str, None] = {}
        for switch in level:
            parent = parents.get(switch)
            if parent is None:
                tops.append(switch)
                continue
            below.setdefault(parent, []).append(switch)
            if parent not in switches:
                above[parent] = None
        level = list(above)
    _no_loops(switches, parents)
    both = [switch for switch in members if switch in below]
    if both:
        raise ValueError(f"slurm_switches: {', '.join(both)} has nodes and switches below it, expected one of them")
    lines = [f"SwitchName={name} Nodes={conf.hostlist(nodes)}" for name, nodes in members.items()]
    lines += [f"SwitchName={name} Switches={conf.hostlist(below[name])}" for name in switches if name in below]
    return lines + ([f"SwitchName=joined Switches={conf.hostlist(tops)}"] if len(tops) > 1 else [])


def _no_loops(switches: Iterable[str], parents: dict[str, str]) -> None:
    for switch in switches:
        path = [switch]
        while path[-1] in parents:
            if parents[path[-1]] in path:
                raise ValueError(f"slurm_switches: {' > '.join([*path, parents[path[-1]]])} is a loop")
            path.append(parents[path[-1]])
