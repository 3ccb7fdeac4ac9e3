# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a gate from being run at all, and what the judged measurements mean together: verdict and next action."""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

Blocked = list[dict[str, str]]
MIXED = {
    "driver": "driver",
    "product": "GPU model",
    "gpus": "number of GPUs",
    "binaries": "nccl-tests binaries (checksum)",
    "libraries": "MPI and NCCL libraries (checksum)",
    "nccl": "NCCL settings (NCCL_* and /etc/nccl.conf, checksum)",
}


def odd_ones(values: dict[str, Any], what: str) -> Blocked:
    """Nodes that differ from the most frequent value."""
    if len(set(map(str, values.values()))) < 2:
        return []
    usual = Counter(map(str, values.values())).most_common(1)[0][0]
    text = (
        "{what} is {value}, on most nodes {usual}: one gate run is for equal nodes (use --limit for one kind at a time)"
    )
    return [
        {"host": host, "reason": text.format(what=MIXED[what], value=value, usual=usual)}
        for host, value in values.items()
        if str(value) != usual
    ]


def blocked_by_facts(nodes: dict[str, dict[str, Any]]) -> Blocked:
    """Conditions that facts alone show; `nodes` maps a host to its capability."""
    blocked: Blocked = []
    for host, node in nodes.items():
        if node["state"] != "ok":
            why = node["reason"] or "; ".join(node["problems"][:3]) or "no reason given"
            blocked.append({"host": host, "reason": f"gpu_facts says {node['state']}: {why}"})
        elif not node["gpus"]:
            blocked.append({"host": host, "reason": "no GPU"})
        elif node["mig"]:
            blocked.append({"host": host, "reason": "MIG is enabled: NCCL does not run over GPU instances of one GPU"})
    if not blocked:
        for what in ("gpus", "product", "driver"):
            blocked += odd_ones({host: node[what] for host, node in nodes.items()}, what)
    return blocked


def blocked_by_probe(
    nodes: dict[str, dict[str, Any]],
    found: dict[str, dict[str, str]],
    settings: dict[str, Any],
    launcher: str,
    complaint: str = "",
) -> Blocked:
    """Conditions seen inside the job. `nodes` maps a host to {aliases, rdma}, `found` a node's name to its probe;
    `complaint` is what the launcher said last."""
    blocked: Blocked = []
    seen: dict[str, dict[str, str]] = {}
    for host, node in nodes.items():
        probe = next((found[name] for name in node["aliases"] if name in found), None)
        if probe is None:
            blocked.append({"host": host, "reason": f"the job did not run there: {complaint or 'no answer'}"})
            continue
        seen[host] = probe
        if probe["missing"]:
            blocked.append({"host": host, "reason": f"nccl-tests cannot start: {probe['missing']} is missing"})
        if node["rdma"] and probe["memlock"] != "unlimited":
            blocked.append(
                {"host": host, "reason": f"memlock inside the job is {probe['memlock']} KiB, RDMA needs unlimited"}
            )
        if probe["shm_mib"].isdigit() and int(probe["shm_mib"]) < settings["min_shm_mib"]:
            small = f"/dev/shm has {probe['shm_mib']} MiB, nccl_tests_min_shm_mib is {settings['min_shm_mib']}"
            blocked.append({"host": host, "reason": small})
        if launcher == "mpirun" and len(nodes) > 1 and probe["loopback"]:
            blocked.append(
                {"host": host, "reason": f"its own name resolves to {probe['loopback']}: mpirun would call itself"}
            )
    for what in ("binaries", "libraries", "nccl"):
        blocked += odd_ones({host: probe[what] for host, probe in seen.items()}, what)
    return blocked


def verdict(blocked: Blocked, results: list[dict[str, Any]]) -> str:
    """blocked before fail before unstable before pass; nothing measured is blocked, never pass."""
    status = {result["status"] for result in results}
    if blocked or not results:
        return "blocked"
    return "fail" if "fail" in status else "unstable" if "unstable" in status else "pass"


def next_action(
    outcome: str, blocked: Blocked, culprits: list[dict[str, Any]], results: list[dict[str, Any]], warnings: list[str]
) -> str:
    """One or two sentences that tell a person what to do now."""
    if outcome == "blocked":
        if not blocked:
            return "Nothing was measured. Look at the logs beside this report."
        more = f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
        where = f"{blocked[0]['host']}: " if blocked[0]["host"] else ""
        return (
            f"Nothing was judged. Remove what blocks the gate, then run it again. {where}{blocked[0]['reason']}{more}."
        )
    if outcome == "fail":
        return " ".join(_advice(culprit) for culprit in culprits[:3]) or _unnamed(results)
    if outcome == "unstable":
        names = sorted({name for result in results if result["status"] == "unstable" for name in result["nodes"]})
        return (
            f"The figures vary too much to be judged ({', '.join(names[:8])}). Make sure that nothing else runs on "
            "these nodes or their network, look at clocks and temperature, then run the gate again."
        )
    return "Nothing: the cluster may be used." if not warnings else f"The cluster may be used. Look at: {warnings[0]}"


def _advice(culprit: dict[str, Any]) -> str:
    host, evidence = culprit["host"], culprit["evidence"]
    if culprit["kind"] == "gpu":
        return f"Take GPU {culprit['device']} of {host} out of service and check it: {evidence}."
    if culprit["kind"] == "path":
        where = f"the rail {culprit['device']} of {host}" if culprit["device"] else host
        return f"Look at what lies between {where} (NICs, cables, switch ports, firewall): {evidence}."
    if culprit["kind"] == "nic":
        return f"Check NIC {culprit['device']} of {host}: {evidence}."
    return f"Drain {host} and check its GPUs and NICs: {evidence}."


def _unnamed(results: list[dict[str, Any]]) -> str:
    failed: Optional[dict[str, Any]] = next((result for result in results if result["status"] == "fail"), None)
    what = f"{failed['collective']} over {len(failed['nodes'])} nodes: {failed['reason']}. " if failed else ""
    return (
        f"{what}No single node or path is guilty: check what all share (switches, NCCL settings, the expected figure)."
    )
