# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job leaves behind on a node when it ends: processes of its own, and GPUs that stay in use. Private.

Only processes that carry the job's number in their environment are ended, never a user's others. Where cgroups contain
jobs Slurm has done so before; where they do not, a process that made itself a daemon would keep its GPU.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from typing import Any

from ._command import run
from ._node_checks import Finding

Settings = dict[str, Any]


def of_job(job: str, proc: str = "/proc") -> list[int]:
    """Processes that slurmd started for this job, by their environment; not this one and those that it descends from.

    The shell that salloc starts on the host where it is called has the job's number, too, but no SLURMD_NODENAME.
    """
    wanted = f"SLURM_JOB_ID={job}".encode()
    mine = _ancestors(proc)
    found = []
    for entry in os.listdir(proc):
        if not entry.isdigit() or int(entry) in mine:
            continue
        with contextlib.suppress(OSError), open(f"{proc}/{entry}/environ", "rb") as handle:
            variables = handle.read(1024 * 1024).split(b"\0")
            if wanted in variables and any(each.startswith(b"SLURMD_NODENAME=") for each in variables):
                found.append(int(entry))
    return sorted(found)


def _ancestors(proc: str) -> set[int]:
    """This process and those above it: an epilog has the job's number in its environment, too."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            with open(f"{proc}/{pid}/stat", encoding="ascii", errors="replace") as handle:
                pid = int(handle.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return found


def end(job: str, seconds: float, proc: str = "/proc") -> list[int]:
    """Kill what the job left; those that are still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        left = of_job(job, proc)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.1)


def holders(gpus: str, pids: list[int], settings: Settings) -> list[tuple[str, int]]:
    """(GPU, process) of those processes that still compute on the job's GPUs."""
    tool = settings.get("nvidia_smi") or shutil.which("nvidia-smi")
    found = []
    for gpu in [each for each in gpus.split(",") if each.isdigit()] if tool and pids else []:
        answer = run([str(tool), "-i", gpu, "--query-compute-apps=pid", "--format=csv,noheader"], 10.0)
        rows = answer.stdout.decode("utf-8", "replace").split()
        found += [(gpu, int(row)) for row in rows if row.isdigit() and int(row) in pids]
    return found


def clean(job: str, gpus: str, settings: Settings) -> list[Finding]:
    """End what the job left on this node, and tell what could not be ended."""
    left = end(job, float(settings.get("epilog_wait_s", 10)))
    if not left:
        return []
    held = holders(gpus, left, settings)
    if held:
        return [
            Finding("gpu_busy_after_job", f"GPU {gpu}", f"process {pid} of job {job} cannot be ended")
            for gpu, pid in held
        ]
    return [
        Finding("job_left_processes", "", f"{len(left)} processes of job {job} cannot be ended, the first is {left[0]}")
    ]
