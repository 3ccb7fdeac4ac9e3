# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of pytorch_env's training check: a stage of the acceptance report, also where it could not be launched, did
not end, or lost a rank. Private to this collection."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils._training_judge import TITLES, Judge, Limits

TIMED_OUT = 124  # coreutils' timeout says so
BUSY = re.compile("Unable to allocate resources|Requested nodes are busy|Job has been cancelled")
LOST = re.compile(r"connection|peer|socket|broken pipe|network|rendezvous|timed out|timeout|NCCL|store", re.IGNORECASE)


def said(stdout: str) -> tuple[Optional[dict[str, Any]], list[dict[str, Any]]]:
    """What rank 0 printed, None where it did not come to that, and what ranks that failed printed.

    A launcher may put the rank before it, and ranks that speak at once may share a line.
    """
    found, failures = None, []
    for begin in re.finditer(re.escape('{"training'), stdout):
        try:
            told, _end = json.JSONDecoder().raw_decode(stdout, begin.start())
        except ValueError:
            continue
        found = told.get("training", found)
        failures += [told["training_failed"]] if "training_failed" in told else []
    return found, failures


def failed(reason: str, nodes: list[str], status: str = "fail", culprits: Any = ()) -> dict[str, Any]:
    row = {"check": "training on all ranks", "nodes": nodes, "status": status, "reason": reason, "figures": []}
    return {"results": [row], "culprits": [*culprits], "warnings": [], "plots": [], "next_action": ""}


def unready(locks: dict[str, Optional[str]]) -> dict[str, str]:
    """Reason by host for which nothing can be launched: no answer, no environment, another one than most have."""
    counts = Counter(lock for lock in locks.values() if lock)
    usual = max(counts, key=lambda lock: counts[lock]) if counts else ""
    found = {}
    for host, lock in locks.items():
        if lock is None:
            found[host] = "gave no answer"
        elif not lock:
            found[host] = "has no environment: run the role pytorch_env first"
        elif lock != usual:
            found[host] = f"has the environment of lock {lock[:12]}, {counts[usual]} others that of {usual[:12]}"
    return found


def blocked(reasons: dict[str, str]) -> dict[str, Any]:
    """Nothing was launched, for these reasons by host."""
    said = "; ".join(f"{host} {reason}" for host, reason in [*reasons.items()][:8])
    return failed(said, list(reasons), "blocked")


def witnesses(failures: list[dict[str, Any]], names: dict[str, str]) -> list[dict[str, str]]:
    """A rank of each host to blame. Those that only lost a peer are not: what they say is of connections."""
    found: dict[str, dict[str, str]] = {}
    for one in [failure for failure in failures if not LOST.search(failure["error"])] or failures[:1]:
        host = names.get(one["host"]) or names.get(one["host"].split(".")[0]) or str(one["host"])
        evidence = f"rank {one['rank']}, {TITLES.get(one['doing'], one['doing'])}: {one['error']}"
        found.setdefault(host, {"kind": "node", "host": host, "device": "", "evidence": evidence})
    return list(found.values())


def judge(run: dict[str, Any], names: dict[str, str], limits: Limits) -> dict[str, Any]:
    """Options of acceptance_stage (results, culprits, warnings, plots, next_action) from the launch's result.

    `names`: the nodes that were to take part, by host name, with their names in the inventory.
    """
    nodes = list(names.values())
    found, failures = said(run.get("stdout", ""))
    words = [line for line in run.get("stderr", "").splitlines() if line.strip()]
    if failures:
        culprits = witnesses(failures, names)
        reason = "; ".join(f"{culprit['host']}: {culprit['evidence']}" for culprit in culprits[:8])
        return failed(reason, nodes, culprits=culprits)
    if found is None and run.get("rc") == TIMED_OUT:
        return failed("ended without a result when its time was over: a rank hangs", nodes)
    if found is None and BUSY.search(run.get("stderr", "")):
        return failed(f"no free nodes: {words[-1]}", nodes, "blocked")
    if found is None:
        telling = [line for line in words if re.search("error", line, re.IGNORECASE)] or words or ["no word of why"]
        return failed(f"ended with {run.get('rc')} and without a result: {telling[-1][:300]}", nodes)
    one = Judge(found, names, limits)
    rows = [one.mode(answers) for answers in found["modes"]]
    rows += [one.scaling(), one.balance(), *one.data()]
    wrong = any(row["status"] == "fail" for row in rows[: len(found["modes"])])
    action = "" if wrong else one.next_action  # numbers that are wrong go before slow ones
    said_of = {"results": rows, "culprits": one.culprits, "warnings": one.warnings}
    return {**said_of, "plots": one.plots(), "next_action": action}
