# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's stages, driven from the control node through a function that runs launches somewhere else.

0 preflight: is there anything that makes figures worthless. 1 every node alone, side by side. 2 all nodes together.
3 isolation, only after a failure: pairs of nodes, or pairs of GPUs inside a node that failed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_judge as judging
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_launch as launching
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_model as model
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_ports as ports
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_probe as probing
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_transport as transport
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_isolate import Isolate
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_watch import Watch
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_wire import TCP_SHARE, Wire

Outcome = dict[str, Any]
Test = dict[str, Any]  # {label, names, collective, devices}
Run = Callable[[list[dict[str, Any]]], list[Outcome]]


RETESTS = 2
LOOK = 120.0  # seconds for a task that only looks; a node that hangs there must not cost a launch's time limit
STARTS = 3  # a launcher that fails before nccl-tests says a word has measured nothing


class Gate:
    """`run` runs launches ({name, command, environment, timeout, cleanup}) side by side, outcomes in the same order;
    `parse` is the filter `nccl_results`, `say` shows a line of progress, `save(name, text)` keeps a log.

    `nodes` maps a host to {slurm_name, mpi_host, aliases, gpus, leaf, capability}.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        nodes: dict[str, dict[str, Any]],
        run: Run,
        parse: Callable[[str], list[dict[str, Any]]],
        say: Callable[[str], None],
        save: Callable[[str, str], None],
        baseline: Optional[dict[str, float]] = None,
    ) -> None:
        self.settings, self.nodes, self.run_launches, self.parse = settings, nodes, run, parse
        self.say, self.save, self.baseline = say, save, baseline or {}
        self.launcher: launching.Launcher = launching.LAUNCHERS[settings["launcher"]](settings, list(nodes.values()))
        self.known = {alias.partition(".")[0]: name for name, node in nodes.items() for alias in node["aliases"]}
        self.stages: list[dict[str, Any]] = []
        self.blocked: probing.Blocked = []
        self.culprits: list[dict[str, Any]] = []
        self.restarts: list[dict[str, str]] = []  # launches that had to be started again, and why
        self.accepted: list[str] = []  # what the preflight found and the settings accept
        self.probes: dict[str, dict[str, str]] = {}
        self.counters = Watch(self)
        self.beside: list[dict[str, Any]] = []  # what runs beside the next launches

    # What is expected

    def capabilities(self, names: list[str]) -> dict[str, dict[str, Any]]:
        return {name: self.nodes[name]["capability"] for name in names}

    def limits(self, stage: str, collective: str, names: list[str]) -> dict[str, Any]:
        """What a measurement is held against, and why."""
        key = stage if collective == "all_reduce" else f"{stage}_{collective}"
        given = self.settings["expected"].get(key)
        found = model.expected(collective, self.capabilities(names))
        if given is not None:
            why = f"configured: nccl_tests_expected_busbw_gbps.{key} = {float(given):g} GB/s"
            network = [
                node["network"]["why"] for node in self.capabilities(names).values() if node["network"]["kind"] == "tcp"
            ]
            found = {"gbps": float(given), "why": f"{why}; {network[0]}" if network and len(names) > 1 else why}
        settings = self.settings
        kinds = {node["network"]["kind"] for node in self.capabilities(names).values()}
        wire = len(names) > 1 and "tcp" in kinds  # a share of the wire is expected there; the limit is the wire itself
        return {
            "expected_gbps": found["gbps"],
            "expected_why": found["why"],
            "modelled": given is None,
            "floor": settings["floor"],
            "over": settings["over"] / TCP_SHARE if wire else settings["over"],
            "max_cv": settings["max_cv"],
            "margin": settings["margin"],
            "baseline_gbps": self.baseline.get(key),
        }

    def expected(self) -> dict[str, Any]:
        """The figure that decides: all nodes together, or the one node."""
        names = list(self.nodes)
        whole = len(names) > 1 and "cluster" in self.settings["stages"]
        limits = self.limits("cluster" if whole else "node", "all_reduce", names if whole else names[:1])
        return {"value_gbps": limits["expected_gbps"], "derivation": limits["expected_why"]}

    # Launches

    def spec(
        self,
        test: Test,
        command: list[str],
        per_node: int,
        label: str,
        beside: bool = False,
        timeout: Optional[float] = None,
    ) -> dict[str, Any]:
        nodes = [self.nodes[name] for name in test["names"]]
        variables = launching.environment(self.settings, len(nodes), test.get("environment"), test.get("forced"))
        command = launching.with_devices(command, test.get("devices"))
        return {
            "name": label,
            "command": self.launcher.command(label, nodes, per_node, command, variables, beside),
            "environment": variables,
            "timeout": float(timeout or self.settings["timeout"]),
            "cleanup": self.launcher.cleanup(label),
        }

    def per_node(self, test: Test) -> int:
        devices = test.get("devices")
        return len(devices) if devices is not None else min(self.nodes[name]["gpus"] for name in test["names"])

    def samples(self, stage: str, tests: list[Test], launches: int, done: int = 0) -> dict[str, list[dict[str, Any]]]:
        """`launches` rounds, all tests of a round side by side (they share no node): samples by the test's label."""
        taken: dict[str, list[dict[str, Any]]] = {test["label"]: [] for test in tests}
        for number in range(done + 1, done + launches + 1):
            specs = []
            for test in tests:
                binary = f"{self.settings['binaries']}/{test['collective']}_perf"
                label = f"{stage}-{test['label']}-{number}"
                specs.append(self.spec(test, [binary, *launching.perf_args(self.settings)], self.per_node(test), label))
            beside, self.beside = self.beside, []
            outcomes = self.run_launches(specs + beside)
            self.counters.hear("during", outcomes[len(specs) :])
            outcomes = self._restart(specs, outcomes[: len(specs)])
            for test, outcome in zip(tests, outcomes):
                self.save(f"{outcome['name']}.log", f"{outcome['stdout']}\n{outcome['stderr']}")
                ranks = len(test["names"]) * self.per_node(test)
                taken[test["label"]].append(
                    judging.sample(
                        outcome,
                        self.parse(outcome["stdout"]),
                        test["collective"],
                        ranks,
                        test["names"],
                        self.known,
                    )
                )
            good = sum(taken[test["label"]][-1]["status"] == "ok" for test in tests)
            slowest = max(outcome["seconds"] for outcome in outcomes)
            left = (done + launches - number) * slowest
            rest = f", about {left:.0f} s left in this step" if left >= 1 else ""
            ended = f"{good} of {len(tests)} ended well in {slowest:.1f} s"
            self.say(f"{stage}: launch {number} of {done + launches}, {ended}{rest}")
        return taken

    def _restart(self, specs: list[dict[str, Any]], outcomes: list[Outcome]) -> list[Outcome]:
        """Launches that ended before nccl-tests said a word are started again, and the report gets a warning."""
        for _more in range(1, STARTS):
            dead = [index for index, outcome in enumerate(outcomes) if not judging.started(outcome)]
            for index in dead:
                words = judging.last_words(outcomes[index]["stderr"] or outcomes[index]["stdout"])
                name = specs[index]["name"]
                self.restarts.append({"name": name, "words": words})
                self.say(f"{name}: did not start ({words}), once more")
            again = self.run_launches([specs[index] for index in dead]) if dead else []
            for index, outcome in zip(dead, again):
                outcomes[index] = outcome
        return outcomes

    def measure(
        self, stage: str, tests: list[Test], limits_of: Callable[[Test], dict[str, Any]], launches: int
    ) -> list[dict[str, Any]]:
        """Judged results of tests that share no node; what varies too much is measured again first, twice at most."""
        taken = self.samples(stage, tests, launches)
        limits = {test["label"]: limits_of(test) for test in tests}
        for again in range(1, RETESTS + 1):
            so_far = {test["label"]: judging.judge(taken[test["label"]], limits[test["label"]]) for test in tests}
            shaky = [test for test in tests if so_far[test["label"]]["status"] == "unstable"]
            if not shaky:
                break
            self.say(
                f"{stage}: {len(shaky)} of {len(tests)} vary by more than {self.settings['max_cv']:.0%}, measured again"
            )
            for label, more in self.samples(stage, shaky, launches, done=again * launches).items():
                taken[label] += more
        results = []
        for test in tests:
            label = test["label"]
            judged = judging.judge(taken[label], limits[label])
            curve: list[dict[str, Any]] = next((one["curve"] for one in taken[label] if one["curve"]), [])
            end = judging.bytes_of(str(self.settings["end"]))
            if judged["median_gbps"] and 0 < (taken[label][0]["size"] or 0) < 0.9 * end:
                judged["flags"] = [*judged["flags"], "short"]
            samples = [
                {key: one[key] for key in ("status", "detail", "busbw", "in_place", "seconds")} for one in taken[label]
            ]
            results.append(
                {
                    "nodes": test["names"],
                    "collective": test["collective"],
                    "devices": test.get("devices"),
                    **({"rail": test["rail"]} if "rail" in test else {}),
                    "size": next((one["size"] for one in taken[label] if one["size"]), None),
                    "expected_gbps": limits[label]["expected_gbps"],
                    "expected_why": limits[label]["expected_why"],
                    **judged,
                    "software": next((one["software"] for one in taken[label] if one["software"]), ""),
                    "samples": samples,
                    "curve": curve,
                }
            )
        return results

    def add_stage(self, name: str, nodes: list[str], rounds: int, launches: int, results: list[dict[str, Any]]) -> None:
        self.stages.append({"name": name, "nodes": nodes, "rounds": rounds, "launches": launches, "results": results})

    # Stages

    def blocked_now(self) -> probing.Blocked:
        """What facts alone say against a run; costs nothing."""
        gone = [{"host": name, "reason": "failed earlier in this run of Ansible"} for name in self.settings["absent"]]
        return gone + probing.blocked_by_facts(self.capabilities(list(self.nodes)))

    def plan(self) -> list[str]:
        """What `run` would do, in words."""
        names, launches = list(self.nodes), self.settings["launches"]
        sizes = f"{self.settings['begin']} to {self.settings['end']}, {self.settings['iterations']} iterations a size"
        lines = [f"plan: {entry['host']} would block the gate now: {entry['reason']}" for entry in self.blocked_now()]
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
        longest = self.settings["timeout"] * launches * len(steps)
        lines.append(f"plan: through {self.launcher.name}; at most {longest} s unless something varies or fails")
        return lines

    def preflight(self) -> bool:
        """Stage 0. True when figures would mean something."""
        names = list(self.nodes)
        self.blocked = self.blocked_now()
        probed = 0
        if not self.blocked:
            opening = self.launcher.open(self.longest())
            if opening:
                self.say(f"preflight: waits up to {self.settings['wait']} s for {len(names)} free nodes")
                outcome = self.run_launches([self._plain("allocate", opening, self.settings["wait"] + 30)])[0]
                reason = self.launcher.opened(outcome)
                if reason:
                    self.blocked.append({"host": "", "reason": f"Slurm did not give all nodes to the gate: {reason}"})
        if not self.blocked:
            probed = 1
            self._probe(names)
        reasons = {entry["host"]: entry["reason"] for entry in self.blocked}
        results = [
            {
                "nodes": [name],
                "status": "blocked" if name in reasons or "" in reasons else "pass",
                "reason": reasons.get(name, reasons.get("", "")),
            }
            for name in names
        ]
        self.add_stage("preflight", names, probed, probed, results)
        self.say(
            f"preflight: {'blocked, ' + self.blocked[0]['reason'] if self.blocked else 'nothing stands in the way'}"
        )
        return not self.blocked

    def _probe(self, names: list[str]) -> None:
        """One task a node that says what only the job can know."""
        command = ["sh", "-c", probing.PROBE, "probe", self.settings["binaries"]]
        outcome = self.run_launches([self.spec({"names": names}, command, 1, "preflight-probe", timeout=LOOK)])[0]
        self.save("preflight-probe.log", f"{outcome['stdout']}\n{outcome['stderr']}")
        self.probes = probing.read_probe(outcome["stdout"])
        views = {
            name: {
                "aliases": node["aliases"],
                "rdma": node["capability"]["network"]["kind"] == "rdma" and len(names) > 1,
                "product": node["capability"]["product"],
                "network": node["capability"]["network"],
            }
            for name, node in self.nodes.items()
        }
        words = judging.last_words(outcome["stderr"] or outcome["stdout"])
        self.blocked, self.accepted = probing.blocked_by_probe(
            views, self.probes, self.settings, self.launcher.name, words
        )
        if not self.blocked and len(names) > 1:
            self.accepted += ports.look(self)
        if self.blocked and not self.probes:
            self.blocked = [{"host": "", "reason": f"no job starts ({self.launcher.name}): {words}"}]

    def _plain(self, name: str, command: list[str], timeout: float) -> dict[str, Any]:
        return {"name": name, "command": command, "environment": {}, "timeout": float(timeout), "cleanup": []}

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

    def together(self) -> list[dict[str, Any]]:
        """Stage 2."""
        names, launches = list(self.nodes), self.settings["launches"]
        results = []
        for collective in self.settings["collectives"]:
            test = {"label": collective, "names": names, "collective": collective, "environment": transport.LOGGING}
            results += self.measure(
                "cluster", [test], lambda test: self.limits("cluster", test["collective"], names), launches
            )
        transport.look(self, names, results[0])
        self.add_stage("cluster", names, len(results), sum(len(result["samples"]) for result in results), results)
        return results

    def run(self) -> None:
        """All stages that are needed; afterwards `stages`, `blocked` and `culprits` say what was found."""
        try:
            if not self.preflight():
                return
            self.counters.look("before")
            wanted = self.settings["stages"]
            failed = [r for r in self.alone() if r["status"] == "fail"] if "nodes" in wanted else []
            if failed:
                Isolate(self).inside(failed)
            if not failed and self.settings["wire"]:
                Wire(self).run()
            if not failed and len(self.nodes) > 1 and "cluster" in wanted:
                failed = [result for result in self.together() if result["status"] == "fail"]
                if failed and "socket_fallback" not in failed[0]["flags"]:
                    Isolate(self).between(failed)
            self.counters.compare()
        finally:
            closing = self.launcher.close()
            if closing and closing[-1]:
                self.run_launches([self._plain("release", closing, 60)])
