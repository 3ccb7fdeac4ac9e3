# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the gate measures: launches of nccl-tests on sets of nodes that share none, what they are held against, and their
judged results. What is measured, and when, is the business of the stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_judge as judging
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_launch as launching
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_model as model
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_below_nccl import TCP_SHARE
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_watch import Watch

Outcome = dict[str, Any]
Test = dict[str, Any]  # {label, names, collective, devices}
Run = Callable[[list[dict[str, Any]]], list[Outcome]]

RETESTS = 2
STARTS = 5  # a launcher that fails before nccl-tests says a word has measured nothing


class Bench:
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
        self.restarts: list[dict[str, str]] = []  # launches that had to be started again, and why
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
        end = judging.bytes_of(str(self.settings["end"]))
        for number in range(done + 1, done + launches + 1):
            # What hung once is known to fail: two more launches would hold the others up for two more time limits.
            going = [test for test in tests if not any(one["status"] == "hang" for one in taken[test["label"]])]
            if not going:
                break
            specs = []
            for test in going:
                binary = f"{self.settings['binaries']}/{test['collective']}_perf"
                label = f"{stage}-{test['label']}-{number}"
                specs.append(self.spec(test, [binary, *launching.perf_args(self.settings)], self.per_node(test), label))
            beside, self.beside = self.beside, []
            outcomes = self.run_launches(specs + beside)
            self.counters.hear("during", outcomes[len(specs) :])
            outcomes = self._restart(specs, outcomes[: len(specs)])
            for test, outcome in zip(going, outcomes):
                taken[test["label"]].append(self._sample(test, outcome, end))
            good = sum(taken[test["label"]][-1]["status"] == "ok" for test in going)
            slowest = max(outcome["seconds"] for outcome in outcomes)
            left = (done + launches - number) * slowest
            rest = f", about {left:.0f} s left in this step" if left >= 1 else ""
            ended = f"{good} of {len(going)} ended well in {slowest:.1f} s"
            self.say(f"{stage}: launch {number} of {done + launches}, {ended}{rest}")
        return taken

    def _sample(self, test: Test, outcome: Outcome, end: float) -> dict[str, Any]:
        self.save(f"{outcome['name']}.log", f"{outcome['stdout']}\n{outcome['stderr']}")
        runs, ranks = self.parse(outcome["stdout"]), len(test["names"]) * self.per_node(test)
        return judging.sample(outcome, runs, test["collective"], ranks, test["names"], self.known, end)

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
            if odd := next((one["contradiction"] for one in taken[label] if one["contradiction"]), ""):
                judged["flags"] = [*judged["flags"], "contradiction"]
                judged["reason"] = f"{judged['reason']}; its table contradicts itself: {odd}"
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
