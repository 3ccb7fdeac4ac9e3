# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the judged measurements mean together: verdict and next action."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils._gate_probe import Blocked

ALIKE = 0.95  # nodes whose figures differ by less are equally slow


def verdict(blocked: Blocked, results: list[dict[str, Any]]) -> str:
    """blocked before fail before unstable before pass; nothing measured is blocked, never pass."""
    status = {result["status"] for result in results}
    if blocked or not results:
        return "blocked"
    return "fail" if "fail" in status else "unstable" if "unstable" in status else "pass"


def alike(failed: list[dict[str, Any]], count: int) -> bool:
    """Whether all of `count` nodes fail alone in the same way: equally slow, or all launches broken in one way.

    That is the fault of what they share, and no reason to accuse or drain every node of a cluster.
    """
    if count < 2 or len(failed) != count:
        return False
    ways = {tuple(sorted({one["status"] for one in result["samples"]})) for result in failed}
    if ways != {("ok",)}:
        return len(ways) == 1 and "ok" not in next(iter(ways))
    values = [result["median_gbps"] for result in failed]
    return bool(min(values) >= ALIKE * max(values))


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
        more = f" {len(culprits) - 3} more are listed below." if len(culprits) > 3 else ""
        return " ".join(_advice(culprit) for culprit in culprits[:3]) + more or _unnamed(results)
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
    if evidence.startswith("failed with"):
        where = "its way to the others (NICs, cables, switch ports)"
        return f"Drain {host} and check {where}: alone it is good, it {evidence}."
    return f"Drain {host} and check its GPUs and what runs on it: {evidence}."


def _unnamed(results: list[dict[str, Any]]) -> str:
    alone = [result for result in results if len(result["nodes"]) == 1 and "samples" in result]
    failures = [result for result in alone if result["status"] == "fail"]
    if alike(failures, len(alone)):
        return (
            f"All {len(alone)} nodes fail alike when alone ({failures[0]['nodes'][0]}: {failures[0]['reason']}), so no "
            "node is to blame: check what they share (how nccl-tests and MPI are built, NCCL settings, driver and "
            "fabric manager, the expected figure)."
        )
    failed: Optional[dict[str, Any]] = next((result for result in results if result["status"] == "fail"), None)
    what = f"{failed['collective']} over {len(failed['nodes'])} nodes: {failed['reason']}. " if failed else ""
    return (
        f"{what}No single node or path is guilty: check what all share (switches, NCCL settings, the expected figure)."
    )
