# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of Slurm's clients as data; nodes are read by _slurm_drain, the accounting by _slurm_accounting. Private."""

from __future__ import annotations

import re
from typing import Any

PARTITIONS = "%R|%a|%D|%l"
JOBS = "%i|%u|%a|%P|%T|%r|%N"
# What a job has been given is told in the long form only, which cuts and pads each field to the width behind the colon.
JOB_TRES = "JobArrayID:64,tres-alloc:256"


def parse_config(text: str) -> dict[str, str]:
    """Answer of `scontrol show config`, by option."""
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def parse_ping(text: str) -> dict[str, bool]:
    """Answer of `scontrol ping`: whether each controller answers, by host name."""
    return {host: state == "UP" for host, state in re.findall(r"Slurmctld\(\w+\) at (\S+) is (\w+)", text)}


def parse_partitions(text: str) -> dict[str, dict[str, Any]]:
    """Lines of `sinfo -h -o PARTITIONS`, one for each partition and state of its nodes, by partition."""
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        name, state, count, limit = [*line.strip().split("|"), "", "", ""][:4]
        if name:
            partition = found.setdefault(name, {"state": state, "nodes": 0, "max_time": limit})
            partition["nodes"] += int(count or 0)
    return found


def parse_jobs(text: str, tres: str) -> list[dict[str, Any]]:
    """Lines of `squeue -h -o JOBS` and of `squeue -h -O JOB_TRES`; `nodes` is still a host list."""
    granted = {line[:64].strip(): re.search(r"(?:^|,)gres/gpu=(\d+)", line[64:].strip()) for line in tres.splitlines()}
    jobs = []
    for line in text.splitlines():
        job, user, account, partition, state, reason, nodes = [*line.strip().split("|"), *[""] * 7][:7]
        if not job:
            continue
        gpus = granted.get(job)
        waiting = state == "PENDING"
        jobs.append(
            {
                "id": job,
                "user": user,
                "account": account,
                "partition": partition,
                "state": state.lower(),
                "reason": reason if waiting else "",
                "nodes": nodes,
                "gpus": int(gpus.group(1)) if gpus else 0,
            }
        )
    return jobs
