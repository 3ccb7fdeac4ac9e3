# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks for what is wrong with this node; with --slurm, drains it with the reason. Slurm's HealthCheckProgram.

Installed as one file together with the parsers of gpu_facts. Settings: /etc/gpuops/node_health.json. The last result is
kept in /run/gpuops/node_health.json. Exit codes: 0 healthy, 1 a reason to drain, 2 wrong settings or another run is on.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _node_health as health

SETTINGS = Path("/etc/gpuops/node_health.json")
RESULTS = Path("/run/gpuops")
OURS = "node_health:"


class Slurm:
    """The few things that this program asks of scontrol."""

    def __init__(self, node: str, timeout_s: int = 30) -> None:
        self.node = node
        self.timeout_s = timeout_s

    def _scontrol(self, *arguments: str) -> str:
        done = subprocess.run(
            ["scontrol", *arguments], capture_output=True, text=True, check=True, timeout=self.timeout_s
        )
        return done.stdout

    def state(self) -> tuple[set[str], str]:
        """States of the node, and the reason that somebody gave for them."""
        text = self._scontrol("--oneliner", "show", "node", self.node)
        states = text.partition(" State=")[2].split(" ", 1)[0].upper().split("+")
        reason = text.partition(" Reason=")[2].partition(" [")[0].strip()
        return set(states), reason

    def drain(self, reason: str) -> bool:
        """Drain with this reason; a node that somebody else drained keeps theirs. True when something was changed."""
        states, known = self.state()
        if "DRAIN" in states and (known == reason or not known.startswith(OURS)):
            return False
        self._scontrol("update", f"nodename={self.node}", "state=drain", f"reason={reason}")
        return True

    def resume(self) -> bool:
        """Resume the node if it was this program that drained it. True when something was changed."""
        states, known = self.state()
        if "DRAIN" not in states or not known.startswith(OURS):
            return False
        self._scontrol("update", f"nodename={self.node}", "state=resume")
        return True


def keep(result: dict[str, Any]) -> None:
    """Write the result in one step, so that nobody reads half of it."""
    RESULTS.mkdir(mode=0o755, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=RESULTS, delete=False) as new:
        json.dump(result, new, indent=1)
        os.fchmod(new.fileno(), 0o644)
    os.replace(new.name, RESULTS / "node_health.json")


def act(result: dict[str, Any], reason: str, settings: dict[str, Any]) -> None:
    """Tell Slurm; that it cannot be told is said, and changes nothing about the node's own verdict."""
    slurm = Slurm(settings.get("slurm_node") or socket.gethostname().split(".")[0])
    try:
        if reason and slurm.drain(reason):
            print(f"drained: {reason}")
        elif not reason and settings.get("resume") and slurm.resume():
            print("resumed: nothing is wrong any more")
    except (OSError, subprocess.SubprocessError) as error:
        result["slurm"] = f"could not be told: {error}"
        print(result["slurm"], file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slurm", action="store_true", help="drain the node in Slurm when something is wrong")
    parser.add_argument("--settings", type=Path, default=SETTINGS)
    arguments = parser.parse_args()
    try:
        settings: dict[str, Any] = json.loads(arguments.settings.read_text()) if arguments.settings.exists() else {}
    except ValueError as error:
        print(f"{arguments.settings}: {error}", file=sys.stderr)
        return 2

    # A sick driver lets nvidia-smi hang for its whole time limit; runs must not pile up meanwhile.
    RESULTS.mkdir(mode=0o755, exist_ok=True)
    with (RESULTS / "node_health.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another run is on", file=sys.stderr)
            return 2
        findings = health.examine(settings)
        result = health.report(findings, settings)
        for row in result["findings"]:
            print(f"{row['severity']}: {row['code']} {row['device']}: {row['detail']}".replace(" :", ":"))
        if arguments.slurm:
            act(result, health.drain_reason(findings, settings), settings)
        keep(result)
    return 0 if result["healthy"] else 1


if __name__ == "__main__":
    sys.exit(main())
