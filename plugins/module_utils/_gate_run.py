# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's stages, driven from the control node through a function that runs launches somewhere else.

0 preflight: is there anything that makes figures worthless. 1 every node alone, side by side. 2 all nodes together.
3 isolation, only after a failure: pairs of nodes, or pairs of GPUs inside a node that failed alone.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_launch as launching
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_preflight as preflight
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_probe as probing
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_transport as transport
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_below_nccl import Wire
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_bench import RETESTS, Bench
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_isolate import Isolate


class Gate(Bench):
    """After `run`, `stages`, `blocked` and `culprits` say what was found."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.stages: list[dict[str, Any]] = []
        self.blocked: probing.Blocked = []
        self.culprits: list[dict[str, Any]] = []
        self.accepted: list[str] = []  # what the preflight found and the settings accept
        self.probes: dict[str, dict[str, str]] = {}

    def expected(self) -> dict[str, Any]:
        """The figure that decides: all nodes together, or the one node."""
        names = list(self.nodes)
        whole = len(names) > 1 and "cluster" in self.settings["stages"]
        limits = self.limits("cluster" if whole else "node", "all_reduce", names if whole else names[:1])
        return {"value_gbps": limits["expected_gbps"], "derivation": limits["expected_why"]}

    def add_stage(self, name: str, nodes: list[str], rounds: int, launches: int, results: list[dict[str, Any]]) -> None:
        self.stages.append({"name": name, "nodes": nodes, "rounds": rounds, "launches": launches, "results": results})

    # Stages

    def blocked_now(self) -> probing.Blocked:
        """What facts alone say against a run; costs nothing."""
        text = "failed earlier in this run of Ansible"
        gone = [{"host": name, "check": "reachable", "reason": text} for name in self.settings["absent"]]
        return gone + probing.blocked_by_facts(self.capabilities(list(self.nodes)))

    def plan(self) -> list[str]:
        """What `run` would do, in words."""
        names, launches = list(self.nodes), self.settings["launches"]
        sizes = f"{self.settings['begin']} to {self.settings['end']}, {self.settings['iterations']} iterations a size"
        gpus = sum(node["gpus"] for node in self.nodes.values())
        listed = f"{', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
        lines = [f"plan: {len(names)} nodes, {gpus} GPUs: {listed}"]
        lines += [f"plan: {entry['host']} would block the gate now: {entry['reason']}" for entry in self.blocked_now()]
        wanted = self.settings["stages"]
        steps = [("every node alone", "node", "all_reduce", names[:1], len(names))] if "nodes" in wanted else []
        if len(names) > 1 and "cluster" in wanted:
            steps += [(f"{c} over all nodes", "cluster", c, names, 1) for c in self.settings["collectives"]]
        for what, stage, collective, where, count in steps:
            limits = self.limits(stage, collective, where)
            value = limits["expected_gbps"]
            expected = "no figure" if value is None else f"{value:g} GB/s, floor {value * limits['floor']:g}"
            side = f"{launches} x {count} side by side" if count > 1 else f"{launches}"
            lines.append(f"plan: {what}: {side} launches of {sizes}; expected {expected} ({limits['expected_why']})")
        if self.settings["wire"]:
            lines.append("plan: below NCCL: iperf3 or ib_write_bw between pairs, nvbandwidth on nodes, where installed")
        if self.settings["isolate"]:
            lines.append(
                "plan: after a failure: pairs of GPUs in nodes that fail alone, three rounds of pairs of nodes"
            )
        longest = self.settings["timeout"] * launches * len(steps)
        lines.append(f"plan: through {self.launcher.name}; at most {longest} s unless something varies or fails")
        return lines

    def longest(self) -> float:
        """Seconds that everything may take if each launch, retests and isolation included, runs into its limit."""
        per_test = (1 + RETESTS) * self.settings["launches"] * self.settings["timeout"]
        return float(per_test * (2 + len(self.settings["collectives"]) + (5 if self.settings["isolate"] else 0)))

    def alone(self) -> list[dict[str, Any]]:
        """Stage 1."""
        names, launches = list(self.nodes), self.settings["launches"]
        tests = [{"label": name, "names": [name], "collective": "all_reduce"} for name in names]
        self.beside = self.counters.during()
        results = self.measure("nodes", tests, lambda test: self.limits("node", "all_reduce", test["names"]), launches)
        self.add_stage("nodes", names, 1, sum(len(result["samples"]) for result in results), results)
        return results

    def together(self, names: list[str]) -> list[dict[str, Any]]:
        """Stage 2, over the nodes that did not fail alone."""
        launches, results = self.settings["launches"], []
        for collective in self.settings["collectives"]:
            test = {"label": collective, "names": names, "collective": collective, "environment": transport.LOGGING}
            results += self.measure("cluster", [test], self._limits, launches)
        transport.look(self, names, results[0])
        self.add_stage("cluster", names, len(results), sum(len(result["samples"]) for result in results), results)
        return results

    def _limits(self, test: dict[str, Any]) -> dict[str, Any]:
        limits = self.limits("cluster", test["collective"], test["names"])
        return limits if len(test["names"]) == len(self.nodes) else {**limits, "baseline_gbps": None}

    def _allocation_lost(self) -> probing.Blocked:
        """Whether failures may be due to an allocation that ended too early: somebody's scancel, or its time limit."""
        asking = self.launcher.held()
        if not asking or not any(r["status"] == "fail" for stage in self.stages for r in stage["results"]):
            return []
        outcome = self.run_launches([preflight.plain("held", asking, 60)])[0]
        if outcome["rc"] != 0 or self.launcher.job in outcome["stdout"].split():
            return []
        why = f"cancelled, out of time, or the control node was silent for {launching.LEASE} s"
        text = f"Slurm job {self.launcher.job}, which held the nodes, ended before the gate did ({why})"
        return [{"host": "", "check": "allocation", "reason": text}]

    def run(self) -> None:
        """All stages that are needed; afterwards `stages`, `blocked` and `culprits` say what was found.

        Nodes that fail alone are searched, and left out of what follows: a second fault elsewhere is found as well.
        """
        try:
            if not preflight.passed(self):
                return
            self.counters.look("before")
            search, wanted = Isolate(self), self.settings["stages"]
            failed = [r for r in self.alone() if r["status"] == "fail"] if "nodes" in wanted else []
            if failed:
                search.inside(failed)
            bad = {name for result in failed for name in result["nodes"]}
            names = [name for name in self.nodes if name not in bad]
            if names and self.settings["wire"]:
                Wire(self, names).run()
            if len(names) > 1 and "cluster" in wanted:
                failed = [result for result in self.together(names) if result["status"] == "fail"]
                if failed and "socket_fallback" not in failed[0]["flags"]:
                    search.between(failed, names)
            search.finish()
            self.counters.compare()
            if lost := self._allocation_lost():
                self.blocked, self.culprits = lost, []
        finally:
            closing = self.launcher.close()
            if closing and closing[-1]:
                self.run_launches([preflight.plain("release", closing, 60)])
