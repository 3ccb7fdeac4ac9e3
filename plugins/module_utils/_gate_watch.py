# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at counters before, during and after the measurements, through the gate's own launcher."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_counters as counting

LOOK = 120.0  # seconds for one look at the counters of all nodes


class Watch:
    """`gate` is the Gate that measures. Nodes that cannot be asked have no counters; nothing fails because of that."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.seen: dict[str, dict[str, counting.Values]] = {"before": {}, "during": {}, "after": {}}
        self.moves: list[dict[str, Any]] = []

    def _spec(self, when: str, seconds: int) -> dict[str, Any]:
        command = ["sh", "-c", counting.SCRIPT, "counters", str(seconds)]
        names = {"names": list(self.gate.nodes)}
        spec: dict[str, Any] = self.gate.spec(names, command, 1, f"counters-{when}", True, None if seconds else LOOK)
        return spec

    def look(self, when: str) -> None:
        self.hear(when, self.gate.run_launches([self._spec(when, 0)]))

    def during(self) -> list[dict[str, Any]]:
        """What is to run beside a launch: a look at clocks and temperatures every second while nccl-tests runs."""
        return [self._spec("during", self.gate.settings["timeout"])]

    def hear(self, when: str, outcomes: list[dict[str, Any]]) -> None:
        for outcome in outcomes:
            self.gate.save(f"counters-{when}.log", f"{outcome['stdout']}\n{outcome['stderr']}")
            self.seen[when] = counting.read(outcome["stdout"])

    def compare(self) -> None:
        """Afterwards: what grew, and what it adds to the accusations."""
        self.look("after")
        for host, node in self.gate.nodes.items():
            before, during, after = (
                next((self.seen[when][name] for name in node["aliases"] if name in self.seen[when]), {})
                for when in ("before", "during", "after")
            )
            self.moves += counting.moved(host, before, during, after, node["capability"].get("addresses", []))
        self.gate.culprits = [counting.refine(culprit, self.moves) for culprit in self.gate.culprits]
