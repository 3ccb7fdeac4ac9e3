# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks for what is wrong with this node. By hand it prints; called by Slurm it drains the node with the reason.

Installed as one file together with the parsers of gpu_facts. Settings: /etc/gpuops/node_health.json. The last result is
kept in /run/gpuops/node_health.json. Exit codes: 0 healthy, 1 a reason to drain, 2 the program itself could not work.
As Slurm's prolog, 1 keeps the job away from the node; nothing that is wrong with the program does.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _job_leftovers as leftovers
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_health as health
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_drain as drain
from ansible_collections.gpuops.cluster.plugins.module_utils._node_checks import CHECKS

SETTINGS = Path("/etc/gpuops/node_health.json")
RESULTS = Path("/run/gpuops")
RESULT = RESULTS / "node_health.json"
AROUND_JOB = RESULTS / "node_health_job.json"  # of prolog and epilog, which look at less
ACKNOWLEDGED = RESULTS / "xid_acknowledged"
# What has to be right before a job starts, and is quick to see.
BEFORE_JOB = ("gpus", "xid", "fabric", "memlock", "daemons")


class Busy(Exception):
    """Another run is on."""


class Slurm:
    """The few things that this program asks of scontrol."""

    def __init__(self, node: str, timeout_s: int = 20) -> None:
        self.node = node
        self.timeout_s = timeout_s

    def _scontrol(self, *arguments: str) -> str:
        done = subprocess.run(
            ["scontrol", *arguments], capture_output=True, text=True, check=True, timeout=self.timeout_s
        )
        return done.stdout

    def look(self) -> drain.Node:
        nodes = drain.parse_nodes(self._scontrol("--oneliner", "show", "node", self.node))
        if self.node not in nodes:
            raise LookupError(drain.unknown([self.node], nodes))
        return nodes[self.node]

    def drain(self, node: drain.Node, reason: str) -> bool:
        """Drain with this reason; a node that somebody else drained keeps theirs. True when something was changed."""
        if not drain.to_drain([node], reason, own=health.OURS):
            return False
        self._scontrol("update", f"nodename={self.node}", "state=drain", f"reason={reason}")
        return True

    def resume(self, node: drain.Node) -> bool:
        """Resume the node if it was this program that drained it. True when something was changed."""
        if not (node.drained and drain.to_resume([node], health.OURS, prefix=True)):
            return False
        self._scontrol("update", f"nodename={self.node}", "state=resume")
        return True


@contextlib.contextmanager
def alone(seconds: float, name: str = "node_health.lock") -> Iterator[None]:
    """One run at a time: a sick driver lets nvidia-smi hang, and runs must not pile up meanwhile."""
    RESULTS.mkdir(mode=0o755, exist_ok=True)
    deadline = time.monotonic() + seconds
    with (RESULTS / name).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Busy("another run is on") from None
                time.sleep(0.1)
        yield


def last(path: Path) -> dict[str, Any]:
    """The result of the run before; nothing where there is none that can be read."""
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def keep(result: dict[str, Any], path: Path) -> None:
    """Write the result in one step, so that nobody reads half of it. A full /run is no reason to stop."""
    new = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=RESULTS, prefix=".node_health", delete=False) as file:
            new = file.name
            json.dump(result, file, indent=1)
            os.fchmod(file.fileno(), 0o644)
        os.replace(new, path)
    except OSError as error:
        print(f"the result could not be kept: {error}", file=sys.stderr)
        if new:
            with contextlib.suppress(OSError):
                os.unlink(new)


def look(settings: dict[str, Any], path: Path, names: tuple[str, ...]) -> tuple[list[health.Finding], dict[str, Any]]:
    """Findings, and the result with them. Checks that hung in the run before are not started again."""
    with contextlib.suppress(OSError):
        settings["acknowledged"] = ACKNOWLEDGED.stat().st_mtime
    stuck = {name: (process[0], process[1]) for name, process in last(path).get("stuck", {}).items()}
    findings, hanging = health.examine(settings, stuck, {name: CHECKS[name] for name in names})
    return findings, {**health.report(findings, settings), "stuck": hanging}


def quick(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of the checks around a job."""
    limit = settings.get("prolog_timeout_s", 30)
    return {**settings, "quick": True, "timeout_s": limit, "check_timeout_s": min(limit, health.SECONDS)}


def tell(findings: list[health.Finding], result: dict[str, Any], settings: dict[str, Any], *, job_over: bool) -> None:
    """Tell Slurm; that it cannot be told is said, and changes nothing about the node's own verdict."""
    slurm = Slurm(settings.get("slurm_node") or os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0])
    try:
        node = slurm.look()
        now = health.draining(findings, settings, job_over=job_over or not node.working)
        reason = health.drain_reason(now)
        if reason and slurm.drain(node, reason):
            print(f"drained: {reason}")
        elif not reason and result["healthy"] and settings.get("resume") and slurm.resume(node):
            print("resumed: nothing is wrong any more")
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        result["slurm"] = f"could not be told: {error}"
        print(result["slurm"], file=sys.stderr)


def say(result: dict[str, Any]) -> None:
    for row in result["findings"]:
        print(f"{row['severity']}: {row['code']} {row['device']}: {row['detail']}".replace(" :", ":"))


def whole(settings: dict[str, Any], *, slurm: bool) -> int:
    """By hand, and as Slurm's HealthCheckProgram."""
    with alone(0):
        findings, result = look(settings, RESULT, tuple(CHECKS))
        say(result)
        if slurm:
            tell(findings, result, settings, job_over=False)
        keep(result, RESULT)
    return 0 if result["healthy"] else 1


def around_job(settings: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Jobs come and go together. They wait for one another's look, and for the health check's they do not."""
    return alone(settings.get("prolog_timeout_s", 30) + 15, "node_health_job.lock")


def recently_well(settings: dict[str, Any]) -> bool:
    """Whether another prolog or epilog has looked just now, and found nothing that anybody would act upon."""
    known = last(AROUND_JOB)
    fresh = 0 <= time.time() - known.get("time", 0) < settings.get("prolog_fresh_s", 10)
    words = {row["severity"] for row in known.get("findings", [])}
    return bool(fresh and not words & {health.DRAIN, health.AFTER_JOB} and not known.get("stuck"))


def before(settings: dict[str, Any]) -> int:
    """As Slurm's prolog: 1 keeps the job away, and only a sick node does."""
    with around_job(settings):
        if recently_well(settings):
            return 0  # another job of the same moment has looked
        findings, result = look(quick(settings), AROUND_JOB, BEFORE_JOB)
        if not result["healthy"]:
            say(result)
            tell(findings, result, settings, job_over=False)
        keep(result, AROUND_JOB)
    return 0 if result["healthy"] else 1


def after(settings: dict[str, Any]) -> int:
    """As Slurm's epilog: what the job left on its GPUs ends, and a node that waited for the job's end is drained."""
    job, gpus = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_GPUS", "")
    left = leftovers.clean(job, gpus, settings) if job else []
    with around_job(settings):
        if not gpus and not left and recently_well(settings):
            return 0  # hundreds of small jobs without GPUs may end at once
        findings, result = look(quick(settings), AROUND_JOB, BEFORE_JOB)
        findings += left
        result = {**health.report(findings, settings), "stuck": result["stuck"]}
        if health.draining(findings, settings, job_over=True):
            say(result)
            tell(findings, result, settings, job_over=True)
        keep(result, AROUND_JOB)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--slurm", action="store_true", help="drain the node in Slurm when something is wrong")
    what.add_argument("--prolog", action="store_true", help="quick checks before a job; 1 keeps it away")
    what.add_argument("--epilog", action="store_true", help="end what a job left behind, drain what waited for its end")
    what.add_argument("--acknowledge", action="store_true", help="Xids so far in the kernel log count no more")
    parser.add_argument("--settings", type=Path, default=SETTINGS)
    arguments = parser.parse_args()
    # Slurm gives its programs few variables.
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin".lstrip(":")
    try:
        settings: dict[str, Any] = json.loads(arguments.settings.read_text()) if arguments.settings.exists() else {}
        if arguments.acknowledge:
            RESULTS.mkdir(mode=0o755, exist_ok=True)
            ACKNOWLEDGED.touch()
            return 0
        if arguments.prolog:
            return before(settings)
        if arguments.epilog:
            return after(settings)
        return whole(settings, slurm=arguments.slurm)
    except Busy as error:
        print(error, file=sys.stderr)
        # Whoever keeps this one waiting may hang in the driver; what is known of the node counts.
        if arguments.prolog and not last(AROUND_JOB).get("healthy", True):
            return 1
    except ValueError as error:
        print(f"{arguments.settings}: {error}", file=sys.stderr)
    except Exception as error:  # whatever it is, it says nothing about the node
        print(f"node_health itself failed: {type(error).__name__}: {error}", file=sys.stderr)
    return 0 if arguments.prolog or arguments.epilog else 2


if __name__ == "__main__":
    sys.exit(main())
