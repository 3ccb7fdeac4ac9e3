# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node, and whether that is a reason to drain it. Private to this collection.

Each check runs in a process of its own with a time limit. A check that itself breaks, or that hangs for a reason of its
own, is a finding of the code `check_failed`, which never drains: a broken checker is not a sick GPU.
"""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Callable

from . import _time_limited
from ._node_checks import CHECKS, PATH_CHECKS, Check, Finding, Settings

# A job that runs is always let finish: drain means that no further one starts.
DRAIN, AFTER_JOB, WARN, IGNORE = "drain", "drain_after_job", "warn", "ignore"
SEVERITIES = {
    "gpu_lost": DRAIN,
    "gpu_missing": DRAIN,
    "gpu_count": DRAIN,
    "unknown_error": DRAIN,
    "ecc_uncorrectable": DRAIN,
    "row_remap_pending": AFTER_JOB,
    "row_remap_failed": DRAIN,
    "page_retirement_pending": AFTER_JOB,
    "nvlink_inactive": DRAIN,
    "pcie_degraded": DRAIN,
    "thermal_slowdown": WARN,
    "power_brake": WARN,
    "mig_pending": WARN,
    "inforom_corrupt": WARN,
    "fabric_not_ready": DRAIN,
    # What the driver wrote into the kernel's log. "xid" stands for all that are not named here.
    "xid": WARN,
    "xid_48": DRAIN,  # uncorrectable memory error
    "xid_63": AFTER_JOB,  # a row is remapped, a page retired, at the next reset
    "xid_64": DRAIN,  # a row could not be remapped
    "xid_74": DRAIN,  # NVLink
    "xid_79": DRAIN,  # fallen off the bus
    "xid_94": AFTER_JOB,  # uncorrectable memory error that hit one program only
    "xid_95": DRAIN,  # … that could not be contained
    "xid_119": DRAIN,  # the GPU's own processor gives no answer
    "xid_120": DRAIN,  # … has an error
    "xid_140": DRAIN,  # memory error that was not recovered
    "report_truncated": WARN,
    "not_permitted": WARN,
    # States of the driver as a whole, where the PCI bus shows GPUs.
    "no_driver": DRAIN,
    "driver_not_loaded": DRAIN,
    "driver_mismatch": DRAIN,
    "no_answer": DRAIN,
    # InfiniBand and RoCE ports that the node is declared to need.
    "port_down": DRAIN,
    "port_initializing": DRAIN,
    "rate_degraded": DRAIN,
    "no_lid": DRAIN,
    # The system.
    "memlock_limited": DRAIN,
    "mount_missing": DRAIN,
    "mount_hangs": DRAIN,
    "disk_read_only": DRAIN,
    "disk_full": WARN,
    "daemon_dead": WARN,
    "clock_unsynchronized": WARN,
    # Processes of a job that has ended hold its GPUs.
    "gpu_busy_after_job": DRAIN,
    "job_left_processes": WARN,
    "check_failed": WARN,
}
OURS = "node_health:"  # what our reasons begin with
NEVER_DRAINS = frozenset({"check_failed"})
SECONDS = 20.0  # that a check may take, if the settings say nothing
MOST = 200  # findings that are kept
CHECK_OF_PATH = "{} {}"

Stuck = dict[str, _time_limited.Process]


def _findings(check: Check, settings: Settings) -> list[dict[str, str]]:
    return [asdict(finding) for finding in list(check(settings))[:MOST]]


def _works(settings: Settings, checks: Mapping[str, Check]) -> dict[str, tuple[Callable[[], Any], float]]:
    limit = float(settings.get("check_timeout_s", SECONDS))
    works: dict[str, tuple[Callable[[], Any], float]] = {}
    for name, check in checks.items():
        # nvidia-smi has its own limit, and tells more than a limit from outside could.
        seconds = settings.get("timeout_s", 60) + 5.0 if name == "gpus" else limit
        works[name] = (functools.partial(_findings, check, settings), seconds)
    for kind, (check, setting) in PATH_CHECKS.items():
        paths = settings.get(setting) or {}
        for path in paths:
            own = {"path": path, "minimum": paths[path] if isinstance(paths, dict) else 0}
            works[CHECK_OF_PATH.format(kind, path)] = (functools.partial(_findings, check, own), limit)
    return works


def _late(name: str, detail: str) -> Finding:
    kind, _space, path = name.partition(" ")
    if kind in PATH_CHECKS:
        return Finding("mount_hangs", path, f"{path} gives no answer: {detail}")
    return Finding("check_failed", name, f"the check itself failed: {detail}")


def examine(
    settings: Settings, stuck: Stuck | None = None, checks: Mapping[str, Check] = CHECKS
) -> tuple[list[Finding], Stuck]:
    """Everything that is wrong now, and the checks whose processes hang. Never raises.

    ``stuck`` are those of the run before. A check that still hangs from then is not started again, so that a node
    with a dead file server does not fill with processes.
    """
    works = _works(settings, checks)
    hanging = {
        name: process for name, process in (stuck or {}).items() if name in works and _time_limited.alive(process)
    }
    findings = [
        _late(name, f"process {process[0]} has hung in it since an earlier run") for name, process in hanging.items()
    ]
    outcomes = _time_limited.together({name: work for name, work in works.items() if name not in hanging})
    for name, outcome in outcomes.items():
        findings += [Finding(**row) for row in outcome.value or []]
        if outcome.failure:
            detail = f"the check itself failed: {outcome.failure}"
            findings.append(
                _late(name, outcome.failure) if outcome.timed_out else Finding("check_failed", name, detail)
            )
        if outcome.left:
            hanging[name] = outcome.left
    return findings[:MOST], hanging


def severity(finding: Finding, settings: Settings) -> str:
    """drain, drain_after_job, warn or ignore: the user's word first, then the table; an unknown code only warns."""
    wishes = settings.get("severities", {})
    codes = [finding.code, *(["xid"] if finding.code.startswith("xid_") else [])]
    known = [table[code] for code in codes for table in (wishes, SEVERITIES) if code in table]
    word = str(known[0]) if known else WARN
    return WARN if finding.code in NEVER_DRAINS and word != IGNORE else word


def draining(findings: list[Finding], settings: Settings, *, job_over: bool = False) -> list[Finding]:
    """Findings for which the node is drained, now or once no job is on it."""
    words = {DRAIN, AFTER_JOB} if job_over else {DRAIN}
    return [finding for finding in findings if severity(finding, settings) in words]


def report(findings: list[Finding], settings: Settings) -> dict[str, Any]:
    """What the last run saw, for people and for the exporter."""
    rows = [{**asdict(finding), "severity": severity(finding, settings)} for finding in findings]
    rows = [row for row in rows if row["severity"] != IGNORE]
    return {
        "host": socket.gethostname(),
        "time": time.time(),
        "healthy": not any(row["severity"] == DRAIN for row in rows),
        "findings": rows,
    }


def drain_reason(findings: list[Finding]) -> str:
    """The reason that Slurm shows, empty when nothing drains. Slurm keeps about 1,000 characters, sinfo shows few."""
    texts = list(dict.fromkeys(finding.text()[:80] for finding in findings))
    if not texts:
        return ""
    more = f" and {len(texts) - 6} more" if len(texts) > 6 else ""
    return f"{OURS} {'; '.join(texts[:6])}{more}"
