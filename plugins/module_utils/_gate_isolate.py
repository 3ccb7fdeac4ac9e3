# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage 3: after a failure, launches over pairs that name the node, path, GPU or link at fault."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_pairs as pairing


class Isolate:
    """`gate` is the Gate whose measurements failed; culprits are added to it."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.results: list[dict[str, Any]] = []
        self.rounds = 0

    def accuse(self, kind: str, host: str, device: str, evidence: str) -> None:
        self.gate.culprits.append({"kind": kind, "host": host, "device": device, "evidence": evidence})

    def _finish(self, names: list[str]) -> None:
        launches = sum(len(result["samples"]) for result in self.results)
        if launches:
            self.gate.add_stage("isolation", names, self.rounds, launches, self.results)

    # Between nodes

    def between(self, failed: list[dict[str, Any]]) -> None:
        """The nodes are good alone and bad together."""
        names = list(self.gate.nodes)
        what = f"{failed[0]['collective']} over all {len(names)} nodes: {failed[0]['reason']}"
        if len(names) == 2:
            self.accuse("path", " and ".join(names), "", f"both nodes pass alone, together they do not: {what}")
            return
        if not self.gate.settings["isolate"]:
            return
        leaves = {name: node["leaf"] for name, node in self.gate.nodes.items() if node.get("leaf")}
        scheme = pairing.Isolation(names, leaves)
        while waves := scheme.next_round():
            self.rounds += 1
            launches = pairing.launches_in(scheme.round, self.gate.settings["launches"])
            outcomes = {}
            for wave in waves:
                outcomes.update(self._pairs(wave, launches))
            scheme.record(outcomes)
            suspects = scheme.suspects()
            self.gate.say(
                f"isolation: round {scheme.round} of at most {pairing.ROUNDS}, {len(suspects)} nodes under suspicion"
            )
        for node in scheme.guilty_nodes():
            bad = [result for result in self.results if node in result["nodes"]]
            self.accuse("node", node, "", f"failed with {len(bad)} of {len(bad)} partners: {bad[-1]['reason']}")
        for a, b in scheme.guilty_paths():
            reason = next(result["reason"] for result in self.results[::-1] if set(result["nodes"]) == {a, b})
            self.accuse("path", f"{a} and {b}", "", f"this pair failed twice, each node is good with others: {reason}")
        self._finish(names)

    def _pairs(self, wave: list[pairing.Pair], launches: int) -> dict[pairing.Pair, bool]:
        gate = self.gate
        tests = [{"label": f"r{self.rounds}-{a}-{b}", "names": [a, b], "collective": "all_reduce"} for a, b in wave]
        results = gate.measure(
            f"isolation-{self.rounds}", tests, lambda test: self._pair_limits(test["names"]), launches
        )
        self.results += results
        return {pair: result["status"] != "fail" for pair, result in zip(wave, results)}

    def _pair_limits(self, names: list[str]) -> dict[str, Any]:
        """A pair is held against its own figure, without the noise limit: the median decides."""
        key = "pair" if "pair" in self.gate.settings["expected"] else "cluster"
        return {**self.gate.limits(key, "all_reduce", names), "max_cv": 1e9, "baseline_gbps": None}

    # Inside nodes

    def inside(self, failed: list[dict[str, Any]]) -> None:
        """These nodes are bad alone: name the GPU or the link in each."""
        for result in failed:
            name = result["nodes"][0]
            node = self.gate.nodes[name]
            gpus: list[int] = []
            links: list[tuple[int, int]] = []
            if self.gate.settings["isolate"] and node["gpus"] > 2:
                gpus, links = self._gpus(name, node)
            for gpu in gpus:
                self.accuse(
                    "gpu",
                    name,
                    str(gpu),
                    f"every pair with this GPU is bad, the others are good; alone: {result['reason']}",
                )
            for a, b in links:
                self.accuse(
                    "gpu",
                    name,
                    f"{a} and {b}",
                    f"only the link between these two GPUs is bad; alone: {result['reason']}",
                )
            if not gpus and not links:
                self.accuse("node", name, "", f"alone: {result['reason']}")
        self._finish([result["nodes"][0] for result in failed])

    def _gpus(self, name: str, node: dict[str, Any]) -> tuple[list[int], list[tuple[int, int]]]:
        """Every pair of GPUs once, one after the other: side by side they would share the host's memory."""
        gate, values = self.gate, {}
        unlimited = {
            **gate.limits("node", "all_reduce", [name]),
            "expected_gbps": None,
            "baseline_gbps": None,
            "max_cv": 1e9,
        }
        rounds = pairing.round_robin(node["gpus"])
        self.rounds = len(rounds)
        for number, pairs in enumerate(rounds, 1):
            for pair in pairs:
                test = {
                    "label": f"{name}-gpu{pair[0]}-{pair[1]}",
                    "names": [name],
                    "collective": "all_reduce",
                    "devices": list(pair),
                }
                result = gate.measure("isolation", [test], lambda _test: unlimited, 1)[0]
                self.results.append(result)
                values[pair] = result["median_gbps"] if result["status"] == "pass" else None
            gate.say(f"isolation: {name}, GPU pairs round {number} of {len(rounds)}")
        return pairing.guilty_gpus(values, node["capability"]["labels"], gate.settings["floor"])
