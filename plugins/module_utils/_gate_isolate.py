# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage 3: after a failure, launches over pairs that name the node, path, GPU or link at fault."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_model as model
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_pairs as pairing
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_verdict as deciding
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_rails import Rails


class Isolate:
    """`gate` is the Gate whose measurements failed; culprits, and at the end a stage, are added to it."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.results: list[dict[str, Any]] = []
        self.rounds = 0
        self.names: dict[str, None] = {}  # nodes that were searched, in their order
        self.collective, self.count = "all_reduce", 0  # what pairs of nodes run, and how many failed together

    def accuse(self, kind: str, host: str, device: str, evidence: str) -> None:
        self.gate.culprits.append({"kind": kind, "host": host, "device": device, "evidence": evidence})

    def finish(self) -> None:
        launches = sum(len(result["samples"]) for result in self.results)
        if launches:
            self.gate.add_stage("isolation", list(self.names), self.rounds, launches, self.results)

    # Between nodes

    def between(self, failed: list[dict[str, Any]], names: list[str]) -> None:
        """These nodes are good alone and bad together: pairs run the collective that failed."""
        self.collective, self.count = failed[0]["collective"], len(names)
        self.names.update(dict.fromkeys(names))
        before = len(self.gate.culprits)
        what = f"{self.collective} over all {len(names)} nodes: {failed[0]['reason']}"
        if len(names) == 2:
            rails = Rails(self).find({"both": names}) if self.gate.settings["isolate"] else {}
            for rail in rails.get("both") or [""]:
                slow = f", {rail} is slower than the other rails" if rail else ""
                text = f"both nodes pass alone, together they do not{slow}: {what}"
                self.accuse("path", " and ".join(names), rail, text)
            return
        if not self.gate.settings["isolate"]:
            return
        leaves = {name: self.gate.nodes[name]["leaf"] for name in names if self.gate.nodes[name].get("leaf")}
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
        self._accuse_nodes(scheme)
        for one, other, count in scheme.guilty_leaves():
            self._accuse_leaves(one, other, count, scheme)
        for a, b in scheme.guilty_paths():
            reason = next(result["reason"] for result in self.results[::-1] if set(result["nodes"]) == {a, b})
            self.accuse("path", f"{a} and {b}", "", f"this pair failed twice, each node is good with others: {reason}")
        if scheme.first and all(scheme.first.values()) and len(self.gate.culprits) == before:
            self._halves(names, what)
        if not scheme.cleared and len(self.gate.culprits) == before:
            for rail in Rails(self).find({"all": names}).get("all", []):
                text = f"over this NIC alone all nodes are slower than over any other, no pair is good: {what}"
                self.accuse("path", f"all {len(names)} nodes", rail, text)
        if len(self.gate.culprits) == before:
            self._once(scheme)

    def _once(self, scheme: pairing.Isolation) -> None:
        """Pairs that failed and were good when they ran again: nobody is accused, but who looks further begins here."""
        pairs = [pair for pair, good in scheme.again.items() if good]
        if pairs:
            shown = ", ".join(f"{a} and {b}" for a, b in pairs[:4]) + (" and others" if len(pairs) > 4 else "")
            self.gate.accepted.append(f"these pairs failed once and were good when they ran again: {shown}")

    def _accuse_nodes(self, scheme: pairing.Isolation) -> None:
        """Nodes that failed with all partners, or their NICs, where one rail is slower than the others."""
        guilty = scheme.guilty_nodes()
        partners = [node for node in self.names if node in scheme.cleared]
        evidence = {}
        for node in guilty:
            bad = [result for result in self.results if node in result["nodes"]]
            evidence[node] = f"failed with {len(bad)} of {len(bad)} partners: {bad[-1]['reason']}"
        rails = Rails(self).find({node: [node, partner] for node, partner in zip(guilty, partners)})
        for node in guilty:
            for rail in rails.get(node) or [""]:
                slow = "over this NIC alone slower than over its others; " if rail else ""
                self.accuse("nic" if rail else "node", node, rail, f"{slow}{evidence[node]}")

    def _accuse_leaves(self, one: list[str], other: list[str], count: int, scheme: pairing.Isolation) -> None:
        """Nodes are good among themselves and bad across: what lies between is guilty, not they."""
        bad = [result for result in self.results if result["status"] == "fail" and not result["devices"]]
        example = f"{' and '.join(bad[0]['nodes'])}: {bad[0]['reason']}" if bad else "see the pairs"
        if not other:
            text = f"all {count} pairs with nodes of other leaves are bad, pairs inside this leaf are good; {example}"
            self.accuse("path", f"leaf {one[0]} and all others", "", text)
            return
        ends = [f"leaf {end[0]}" if scheme.named else ", ".join(end) for end in (one, other)]
        text = f"all {count} pairs across are bad, each of their nodes is good with others; {example}"
        self.accuse("path", " and ".join(ends), "", text)

    def _halves(self, names: list[str], what: str) -> None:
        """Every pair is good, all together are not: halve the nodes, leaf by leaf, while one half alone is bad."""
        leaves = {name: self.gate.nodes[name].get("leaf") or "" for name in names}
        group, bad = sorted(names, key=lambda name: leaves[name]), False
        while len(group) > 3:
            cut = len(group) // 2
            here = leaves[group[cut]]
            starts = [i for i in range(1, len(group)) if leaves[group[i]] != leaves[group[i - 1]]]
            if here and starts:
                cut = min(starts, key=lambda start: abs(start - cut))
            halves = [group[:cut], group[cut:]]
            self.rounds += 1
            tests = [
                {"label": f"half{self.rounds}-{part}", "names": half, "collective": self.collective}
                for part, half in enumerate(halves, 1)
                if len(half) > 1
            ]
            results = self.gate.measure(
                f"isolation-{self.rounds}", tests, self._group_limits, self.gate.settings["launches"]
            )
            self.results += results
            failing = [result["nodes"] for result in results if result["status"] == "fail"]
            self.gate.say(f"isolation: halves of {len(group)} nodes, {len(failing)} of {len(results)} bad")
            if len(failing) != 1:
                if not failing:
                    ends = " and ".join(f"{half[0]} to {half[-1]}" for half in halves)
                    text = f"every pair and each of these groups is good, only together they are not: {what}"
                    self.accuse("path", ends, "", text)
                return
            group, bad = failing[0], True
        if bad:
            self.accuse("path", ", ".join(group), "", f"every pair is good, these together are not: {what}")

    def _group_limits(self, test: dict[str, Any]) -> dict[str, Any]:
        return self._limits("cluster", test["names"])

    def _limits(self, stage: str, names: list[str]) -> dict[str, Any]:
        """What some of the nodes are held against, without the noise limit: the median decides.

        A figure that was configured for all nodes is scaled where fewer of them carry more each.
        """
        limits: dict[str, Any] = self.gate.limits(stage, self.collective, names)
        limits.update(max_cv=1e9, baseline_gbps=None)
        if stage == "cluster" and not limits["modelled"]:
            gpus, usual = self.gate.nodes[names[0]]["gpus"], self.count
            more = model.wire_share(self.collective, gpus, len(names)) / model.wire_share(self.collective, gpus, usual)
            limits["expected_gbps"] = round(limits["expected_gbps"] * more, 5)
        return limits

    def _pairs(self, wave: list[pairing.Pair], launches: int) -> dict[pairing.Pair, bool]:
        gate = self.gate
        tests = [{"label": f"r{self.rounds}-{a}-{b}", "names": [a, b], "collective": self.collective} for a, b in wave]
        results = gate.measure(
            f"isolation-{self.rounds}", tests, lambda test: self._pair_limits(test["names"]), launches
        )
        self.results += results
        return {pair: result["status"] != "fail" for pair, result in zip(wave, results)}

    def _pair_limits(self, names: list[str]) -> dict[str, Any]:
        key = "pair" if self.collective == "all_reduce" else f"pair_{self.collective}"
        return self._limits("pair" if key in self.gate.settings["expected"] else "cluster", names)

    # Inside nodes

    def inside(self, failed: list[dict[str, Any]]) -> None:
        """These nodes are bad alone: name the GPU or the link in each, all nodes side by side."""
        alone = {result["nodes"][0]: result for result in failed}
        self.names.update(dict.fromkeys(alone))
        nodes = self.gate.nodes
        if deciding.alike(failed, len(nodes)):
            self.gate.say(f"isolation: all {len(nodes)} nodes fail alike, so none of them is searched or accused")
            return
        searched = [name for name in alone if self.gate.settings["isolate"] and nodes[name]["gpus"] > 2]
        broken = {name: any(one["status"] != "ok" for one in alone[name]["samples"]) for name in searched}
        values = self._gpu_pairs(searched, broken)
        for name, result in alone.items():
            gpus: list[int] = []
            links: list[tuple[int, int]] = []
            if name in values:
                labels = [] if broken[name] else nodes[name]["capability"]["labels"]
                gpus, links = pairing.guilty_gpus(values[name], labels, self.gate.settings["floor"])
                self._mark(name, pairing.bad_pairs(values[name], labels, self.gate.settings["floor"]))
            for gpu in gpus:
                self.accuse("gpu", name, str(gpu), f"every pair with this GPU is bad; alone: {result['reason']}")
            for a, b in links:
                self.accuse("gpu", name, f"{a} and {b}", f"only this pair of GPUs is bad; alone: {result['reason']}")
            if not gpus and not links:
                self.accuse("node", name, "", f"alone: {result['reason']}")

    def _mark(self, name: str, bad: set[tuple[int, int]]) -> None:
        """Pairs of GPUs are judged against each other: only now is it known which ones failed."""
        for result in self.results:
            if result["nodes"] == [name] and tuple(result["devices"]) in bad and result["status"] == "pass":
                share = f"below {self.gate.settings['floor']:.0%} of this node's best pair of the kind"
                result.update(status="fail", reason=f"{result['median_gbps']:g} GB/s, {share}")

    def _gpu_pairs(self, names: list[str], broken: dict[str, bool]) -> dict[str, dict[tuple[int, int], Any]]:
        """GB/s of every pair of GPUs of each node; None where it crashed, hung or moved wrong data.

        A node that crashed, hung or moved wrong data is searched for that: its pairs count as good (1) or not. In a
        slow node, pairs that look slow are measured again, so that noise accuses nobody.
        """
        settings = self.gate.settings
        values: dict[str, dict[tuple[int, int], Any]] = {name: {} for name in names}
        every = {
            name: [p for turn in pairing.round_robin(self.gate.nodes[name]["gpus"]) for p in turn] for name in names
        }
        # The first pairs of an even number hold every GPU once. Where all hang it is the node, and each further would.
        first = {name: pairs[: self.gate.nodes[name]["gpus"] // 2] for name, pairs in every.items()}
        before = len(self.results)
        self._measure_pairs(first, 1, values)
        ends: dict[str, set[str]] = {name: set() for name in names}
        for result in self.results[before:]:
            ends[result["nodes"][0]].update(one["status"] for one in result["samples"])
        going = [name for name in names if ends[name] != {"hang"} or self.gate.nodes[name]["gpus"] % 2]
        self._measure_pairs({name: every[name][len(first[name]) :] for name in going}, 1, values)
        slow = {
            name: sorted(
                pairing.bad_pairs(values[name], self.gate.nodes[name]["capability"]["labels"], settings["floor"])
            )
            for name in names
            if not broken[name]
        }
        self._measure_pairs(slow, settings["launches"], values)
        return {
            name: {pair: value and 1.0 for pair, value in found.items()} if broken[name] else found
            for name, found in values.items()
        }

    def _measure_pairs(
        self, pairs: dict[str, list[tuple[int, int]]], launches: int, values: dict[str, dict[tuple[int, int], Any]]
    ) -> None:
        """One pair a node at a time: side by side, pairs of a node would share its memory and processors."""
        steps = max([len(some) for some in pairs.values()], default=0)
        for step in range(steps):
            tests = [
                {
                    "label": f"{name}-gpu{some[step][0]}-{some[step][1]}",
                    "names": [name],
                    "collective": "all_reduce",
                    "devices": list(some[step]),
                }
                for name, some in pairs.items()
                if step < len(some)
            ]
            self.rounds += 1
            for result in self.gate.measure(f"isolation-{self.rounds}", tests, self._no_limits, launches):
                self.results.append(result)
                pair = (result["devices"][0], result["devices"][1])
                values[result["nodes"][0]][pair] = result["median_gbps"] if result["status"] == "pass" else None

    def _no_limits(self, test: dict[str, Any]) -> dict[str, Any]:
        """Pairs of GPUs are held against each other, not against a figure."""
        why = {"expected_gbps": None, "expected_why": "compared with the node's other pairs of GPUs"}
        limits: dict[str, Any] = self.gate.limits("node", "all_reduce", test["names"])
        return {**limits, **why, "baseline_gbps": None, "max_cv": 1e9}
