# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines that start nccl-tests on nodes: through Slurm (one exclusive allocation, a step a launch) or mpirun."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Iterable
from typing import Any, Optional, Union


def perf_args(settings: dict[str, Any]) -> list[str]:
    """nccl-tests' options: one GPU a process, data checked."""
    sizes = ["-b", str(settings["begin"]), "-e", str(settings["end"]), "-f", "2"]
    return [*sizes, "-g", "1", "-n", str(settings["iterations"]), "-w", str(settings["warmup"]), "-c", "1"]


def environment(
    settings: dict[str, Any],
    nodes: int,
    more: Optional[dict[str, str]] = None,
    forced: Optional[dict[str, str]] = None,
) -> dict[str, str]:
    """Variables of a launch on so many nodes; the settings win over `more`, `forced` wins over all.

    MPI keeps off InfiniBand, which is NCCL's, off PMIx' shared memory, in which some releases crash, and off Slurm's
    tree fence, with which MPI_Init crashes now and then on busy nodes (figures: README of the role slurm). Two nodes
    mislead: trees report up to twice what the NICs carry, so pairs run as a ring.
    """
    ring = {"NCCL_ALGO": "Ring"} if nodes == 2 else {}
    return {
        "OMPI_MCA_btl": "^openib",
        "PMIX_MCA_gds": "hash",
        "SLURM_PMIX_FENCE": "ring",
        **ring,
        **(more or {}),
        **{key: str(value) for key, value in settings["environment"].items()},
        **(forced or {}),
    }


def with_devices(command: list[str], devices: Optional[Iterable[int]]) -> list[str]:
    """Only these GPUs, set after the launcher has set its own choice."""
    return command if devices is None else ["env", f"CUDA_VISIBLE_DEVICES={','.join(map(str, devices))}", *command]


LEASE = 120  # seconds without a word from the control node, after which it has gone

# Stays behind on the launch host, says which file the control node has to renew, and gives the nodes back when nobody
# does. A controller that does not answer is asked again, and for no more than this user's jobs.
GUARD = """
lease=$(mktemp -t gpuops-gate-XXXXXX) && echo "$lease" || exit
setsid sh -c '
  while sleep 10; do
    jobs=$(squeue --noheader --user="$(id -un)" --format=%A) || continue
    echo "$jobs" | grep -qx "$2" || break
    [ $(($(date +%s) - $(stat -c %Y "$1"))) -gt "$3" ] && scancel "$2"
  done
  rm -f "$1"' guard "$lease" "$1" "$2" >/dev/null 2>&1 </dev/null &
"""


class Slurm:
    """One allocation holds all nodes for the whole gate; every launch is a step in it with its own time limit."""

    name = "slurm"
    lease = ""  # file on the launch host that is renewed by every word from the control node

    def __init__(self, settings: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
        self.settings, self.nodes = settings, nodes
        self.job = ""

    def names(self, nodes: Iterable[dict[str, Any]]) -> str:
        return ",".join(node["slurm_name"] for node in nodes)

    def open(self, seconds: Optional[float]) -> list[str]:
        """The allocation, for so many seconds (none: what the partition gives)."""
        gpus = min(node["gpus"] for node in self.nodes)
        return [
            "salloc",
            "--no-shell",
            "--no-kill",  # a node that dies meanwhile is a result, and no end of the others' measurements
            f"--job-name={self.settings['job_name']}",
            f"--nodes={len(self.nodes)}",
            f"--nodelist={self.names(self.nodes)}",
            f"--gpus-per-node={gpus}",
            "--exclusive",
            "--mem=0",
            "--overcommit",
            f"--immediate={self.settings['wait']}",
            *([f"--time={math.ceil(seconds / 60) + 1}"] if seconds else []),
            *self.settings["slurm_options"],
        ]

    def opened(self, outcome: dict[str, Any]) -> str:
        """Empty when the nodes are ours, else why not."""
        text = f"{outcome['stdout']}\n{outcome['stderr']}"
        granted = re.search(r"Granted job allocation (\d+)", text)
        if outcome["rc"] == 0 and granted:
            self.job = granted.group(1)
            return ""
        lines = [line for line in text.splitlines() if line.strip() and "Pending job allocation" not in line]
        return " / ".join(line.strip() for line in lines[-3:]) or "salloc gave no answer"

    def guard(self) -> list[str]:
        """What ends the allocation if the control node goes; it prints the `lease`."""
        return ["sh", "-c", GUARD, "guard", self.job, str(LEASE)]

    def held(self) -> list[str]:
        """Lists the jobs, ours among them as long as it holds the nodes."""
        return ["squeue", "--noheader", "--format=%A"]

    def close(self) -> list[str]:
        return ["scancel", self.job]

    def command(
        self,
        label: str,
        nodes: list[dict[str, Any]],
        per_node: int,
        command: list[str],
        variables: dict[str, str],
        beside: bool = False,
    ) -> list[str]:
        """`beside`: a task without GPUs that may run while another step holds the node."""
        gpus = min(node["gpus"] for node in self.nodes)
        mpi = f"--mpi={self.settings['slurm_mpi']}"
        own = ["--overlap", "--gres=none", "--mpi=none"] if beside else [f"--gpus-per-node={gpus}", mpi]
        return [
            "srun",
            f"--jobid={self.job or 'JOB'}",
            f"--job-name={label}",
            f"--nodes={len(nodes)}",
            f"--nodelist={self.names(nodes)}",
            f"--ntasks={len(nodes) * per_node}",
            f"--ntasks-per-node={per_node}",
            *own,
            "--cpu-bind=none",
            "--overcommit",
            "--mem=0",
            "--kill-on-bad-exit=1",
            *command,
        ]

    def cleanup(self, label: str) -> list[str]:
        """Ends the step of a launch that was stopped from outside, so that its nodes are free for the next one."""
        steps = f"squeue --noheader --steps --jobs={self.job} --format='%i %j'"
        return [
            "sh",
            "-c",
            f"{steps} | awk -v n={shlex.quote(label)} '$2 == n {{print $1}}' | xargs -r scancel --signal=KILL",
        ]


class Mpirun:
    """Open MPI over ssh, for clusters without Slurm; also one node, where it needs no ssh."""

    name = "mpirun"
    job = lease = ""

    def __init__(self, settings: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
        self.settings, self.nodes = settings, nodes

    def open(self, seconds: Optional[float]) -> list[str]:
        return []

    def opened(self, outcome: dict[str, Any]) -> str:
        return ""

    def guard(self) -> list[str]:
        return []

    def held(self) -> list[str]:
        return []

    def close(self) -> list[str]:
        return []

    def command(
        self,
        label: str,
        nodes: list[dict[str, Any]],
        per_node: int,
        command: list[str],
        variables: dict[str, str],
        beside: bool = False,
    ) -> list[str]:
        hosts = ",".join(f"{node['mpi_host']}:{per_node}" for node in nodes)
        return [
            "mpirun",
            "--allow-run-as-root",
            "-np",
            str(len(nodes) * per_node),
            "--host",
            hosts,
            "--map-by",
            f"ppr:{per_node}:node:OVERSUBSCRIBE",
            "--bind-to",
            "none",
            "--mca",
            "plm_rsh_args",
            "-o BatchMode=yes -o ConnectTimeout=10",
            *(part for key in sorted(variables) if not key.startswith("OMPI_") for part in ("-x", key)),
            *self.settings["mpirun_options"],
            *command,
        ]

    def cleanup(self, label: str) -> list[str]:
        return []


def drain(node: str, reason: str) -> list[str]:
    """Takes a node out of service in Slurm, whatever started the jobs; one that is drained keeps the reason it has."""
    update = 'scontrol update NodeName="$1" State=DRAIN Reason="$2"'
    script = f'state=$(sinfo -hNn "$1" -o %T) || exit; case $state in *drain*) ;; *) {update} ;; esac'
    return ["sh", "-c", script, "drain", node, reason]


Launcher = Union[Slurm, Mpirun]
LAUNCHERS: dict[str, type[Launcher]] = {"slurm": Slurm, "mpirun": Mpirun}


def fingerprint(*parts: Any) -> str:
    """A short name for a set of inputs: equal inputs, equal name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
