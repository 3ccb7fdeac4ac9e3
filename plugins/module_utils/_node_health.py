# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node, and whether that is a reason to drain it. Private to this collection.

A check is a function of the settings that yields findings. A check that itself breaks is a finding of the code
`check_failed`, which never drains: a broken checker is not a sick GPU.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Callable

from . import _fabric_facts, _gpu_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAIN, WARN, IGNORE = "drain", "warn", "ignore"

# A job that runs is always let finish: drain means that no further one starts.
SEVERITIES = {
    "gpu_lost": DRAIN,
    "gpu_missing": DRAIN,
    "unknown_error": DRAIN,
    "ecc_uncorrectable": DRAIN,
    "row_remap_pending": DRAIN,
    "row_remap_failed": DRAIN,
    "page_retirement_pending": WARN,
    "nvlink_inactive": DRAIN,
    "pcie_degraded": DRAIN,
    "thermal_slowdown": WARN,
    "power_brake": WARN,
    "mig_pending": WARN,
    "inforom_corrupt": WARN,
    "fabric_not_ready": DRAIN,
    "xid": WARN,
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
    "mount_missing": DRAIN,
    "disk_full": WARN,
    "check_failed": WARN,
}
GPU_STATES = ("no_driver", "driver_not_loaded", "driver_mismatch", "no_answer")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its code, the device it concerns ("" for the host) and one sentence."""

    code: str
    device: str
    detail: str

    def text(self) -> str:
        """As in a drain reason: the code and the device, short enough for squeue and sinfo."""
        return f"{self.code} {self.device}".strip()


Settings = dict[str, Any]
Check = Callable[[Settings], "Iterator[Finding]"]


def gpus(settings: Settings) -> Iterator[Finding]:
    """Problems of GPUs as gpu_facts tells them, and a driver that does not answer for GPUs that the bus shows."""
    tool = settings.get("nvidia_smi") or shutil.which("nvidia-smi")
    ask = _gpu_facts.caller(tool, settings.get("timeout_s", 60)) if tool else None
    facts = _gpu_facts.gather(ask, settings.get("sysfs_root", "/sys"), settings.get("proc_root", "/proc"))
    if facts["state"] in GPU_STATES and facts["pci_count"]:
        yield Finding(facts["state"], "", facts["reason"])
    for problem in facts["problems"]:
        device = "" if problem["device"] is None else f"GPU {problem['device']}"
        yield Finding(problem["code"], device, problem["detail"])


def fabric(settings: Settings) -> Iterator[Finding]:
    """Problems of the RDMA devices that the node is declared to need; others may be unused on purpose."""
    wanted = settings.get("rdma_devices", [])
    if not wanted:
        return
    facts = _fabric_facts.gather(settings.get("sysfs_root", "/sys"))
    present = {device["name"] for device in facts["rdma"]}
    for name in wanted:
        if name not in present:
            yield Finding("port_down", name, f"RDMA device {name} is not there")
    for problem in facts["problems"]:
        device = str(problem["device"])
        if re.split(r"[\s:/]", device, maxsplit=1)[0] in wanted:
            yield Finding(problem["code"], device, problem["detail"])


def mounts(settings: Settings) -> Iterator[Finding]:
    for path in settings.get("mounts", []):
        if not os.path.ismount(path):
            yield Finding("mount_missing", path, f"{path} is not mounted")


def disk(settings: Settings) -> Iterator[Finding]:
    for path, minimum in settings.get("free_mib", {}).items():
        free = shutil.disk_usage(path).free // 2**20
        if free < minimum:
            yield Finding("disk_full", path, f"{free} MiB free on {path}, {minimum} wanted")


CHECKS: dict[str, Check] = {"gpus": gpus, "fabric": fabric, "mounts": mounts, "disk": disk}


def examine(settings: Settings) -> list[Finding]:
    """Everything that is wrong now. Never raises."""
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            findings += check(settings)
        except Exception as error:
            findings.append(Finding("check_failed", name, f"the check itself failed: {type(error).__name__}: {error}"))
    return findings


def severity(finding: Finding, settings: Settings) -> str:
    """drain, warn or ignore: the user's word first, then the table; an unknown code only warns."""
    return str(settings.get("severities", {}).get(finding.code) or SEVERITIES.get(finding.code, WARN))


def report(findings: list[Finding], settings: Settings) -> dict[str, Any]:
    """What the last run saw, for people and for the exporter."""
    rows = [{**asdict(finding), "severity": severity(finding, settings)} for finding in findings]
    rows = [row for row in rows if row["severity"] != IGNORE]
    return {
        "host": socket.gethostname(),
        "healthy": not any(row["severity"] == DRAIN for row in rows),
        "findings": rows,
    }


def drain_reason(findings: list[Finding], settings: Settings) -> str:
    """The reason that Slurm shows, empty when nothing drains. Slurm keeps about 1,000 characters, sinfo shows few."""
    texts = list(dict.fromkeys(f.text() for f in findings if severity(f, settings) == DRAIN))
    if not texts:
        return ""
    more = f" and {len(texts) - 6} more" if len(texts) > 6 else ""
    return f"node_health: {'; '.join(texts[:6])}{more}"
