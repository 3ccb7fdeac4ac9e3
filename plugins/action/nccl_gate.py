# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance gate, driven from the control node with a line of progress for every round.

Documented in the module of the same name.
"""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpuops.cluster.plugins.filter.nccl_results import FilterModule
from ansible_collections.gpuops.cluster.plugins.module_utils import (
    _gate_compare,
    _gate_leaf_switches,
    _gate_report,
    _gate_store,
)
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_launch as launching
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_judge import last_words
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_publish import publish
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_run import Gate
from ansible_collections.gpuops.cluster.plugins.modules import nccl_gate

display = Display()
LOOK = 15.0  # seconds between two lines while a round lasts
LOST = 5  # answers of the launch host in a row that may go astray
# Settings that change how long or how loudly the gate runs, not what a pass means.
INCIDENTAL = ("always", "compare_to", "drain", "job_name", "note", "parallel", "report_dir", "valid_days", "wait")


def argument_spec() -> dict[str, Any]:
    """The options as the module documents them: one place says them."""
    options = yaml.safe_load(nccl_gate.DOCUMENTATION)["options"]
    return {name: {k: v for k, v in spec.items() if k != "description"} for name, spec in options.items()}


def progress(launches: list[dict[str, Any]], ended: list[str], seconds: float, parallel: int) -> str:
    """How far a round is: who has not ended, and how long it may last at most."""
    names = [launch["name"] for launch in launches if launch["name"] not in set(ended)]
    at_most = max(launch["timeout"] for launch in launches) * -(-len(launches) // parallel) - seconds
    on = f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
    return f"{len(ended)} of {len(launches)} ended after {seconds:.0f} s, at most {max(at_most, 0):.0f} s left: {on}"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the gate's stages through the host that this task is delegated to."""

    _supports_check_mode = True
    launcher: launching.Launcher | None = None  # of the run that is going on

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, settings = self.validate_argument_spec(argument_spec=argument_spec())
        self.task_vars, self.parallel = task_vars or {}, settings["parallel"]
        store = _gate_store.Store(settings["report_dir"])
        if settings["compare_to"] and (problem := _gate_compare.read(settings["compare_to"])[1]):
            raise AnsibleActionFail(f"nccl_tests_compare_to: {problem}")
        if settings["launcher"] == "auto":
            settings["launcher"] = self._launcher()
        nodes = {
            name: {**node, "gpus": node["capability"]["gpus"]} for name, node in sorted(settings.pop("nodes").items())
        }
        self._leaves(nodes, settings)
        proof, parts = self._keys(nodes, settings)
        result["report"] = str(store.folder / "acceptance.html")
        valid = None if settings["always"] else store.proof(proof, settings["valid_days"], time.time())
        gate = Gate(
            settings,
            nodes,
            self._launch,
            FilterModule().filters()["nccl_results"],
            self._say,
            store.save_log,
            store.baseline(parts),
        )
        self.launcher = gate.launcher
        if valid is not None and not gate.blocked_now():
            if settings["compare_to"]:
                self._compare(_gate_compare.read(settings["compare_to"])[0], valid, settings["compare_to"])
            self._say(f"still proven: {len(nodes)} nodes passed at {valid['finished']}, {result['report']}")
            return {**result, "changed": False, "verdict": "pass"}
        if self._task.check_mode:
            plan = gate.plan()
            for line in plan:
                self._say(line)
            return {**result, "changed": True, "plan": plan}
        return {**result, **self._measure(gate, store, proof, parts)}

    def _measure(self, gate: Gate, store: _gate_store.Store, proof: str, parts: str) -> dict[str, Any]:
        started = _gate_store.stamp(time.time())
        old = _gate_compare.read(gate.settings["compare_to"])[0] if gate.settings["compare_to"] else None
        store.clear_logs()
        gate.run()
        finished = _gate_store.stamp(time.time())
        baseline = {"key": parts, "proof": proof, "values": gate.baseline, "history": store.history(parts)}
        report = _gate_report.document(gate, started, finished, baseline, gate.settings["note"])
        if old is not None:
            report["compared"] = self._compare(old, report, gate.settings["compare_to"])
        publish(store.folder, report)
        drained, problems = self._drain(gate, report)
        if drained or problems:
            report["drained"], report["warnings"] = drained, report["warnings"] + problems
            publish(store.folder, report)
        if report["verdict"] == "pass":
            store.promote(parts, finished, _gate_report.figures(report["stages"]))
        self._say(f"verdict: {report['verdict']}. {report['next_action']}")
        if drained:
            self._say(f"drained in Slurm: {', '.join(drained)}")
        for problem in problems:
            self._say(problem)
        outcome = {
            "changed": True,
            "drained": drained,
            "verdict": report["verdict"],
            "next_action": report["next_action"],
        }
        if report["verdict"] != "pass":
            where = store.folder / "acceptance.html"
            outcome.update(
                failed=True, msg=f"The gate says {report['verdict']}. {report['next_action']} Report: {where}"
            )
        return outcome

    def _compare(self, old: Any, report: dict[str, Any], path: str) -> dict[str, Any]:
        compared = _gate_compare.compare(old, report, path)
        for line in _gate_compare.words(compared):
            self._say(line)
        return compared

    def _drain(self, gate: Gate, report: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Take guilty nodes out of service where that is wanted; returns which, and why others could not be."""
        guilty = {one["host"]: one["evidence"] for one in report["culprits"] if one["kind"] in ("node", "gpu", "nic")}
        launches = [
            {
                "name": host,
                "command": launching.drain(gate.nodes[host]["slurm_name"], f"nccl_tests: {evidence}"[:200]),
                "environment": {},
                "timeout": 60.0,
                "cleanup": [],
            }
            for host, evidence in (guilty.items() if gate.settings["drain"] else ())
        ]
        outcomes = self._launch(launches) if launches else []
        bad = [one for one in outcomes if one["rc"] != 0]
        problems = [f"{one['name']} could not be drained in Slurm: {last_words(one['stderr'])}" for one in bad]
        return [one["name"] for one in outcomes if one["rc"] == 0], problems

    def _leaves(self, nodes: dict[str, Any], settings: dict[str, Any]) -> None:
        """The leaf switch of each node from Slurm's topology, where nobody declared any."""
        if settings["launcher"] != "slurm" or len(nodes) < 3 or any(node.get("leaf") for node in nodes.values()):
            return
        answer = self._low_level_execute_command(f"sh -c {shlex.quote(_gate_leaf_switches.ASK)}")
        known = _gate_leaf_switches.known(answer.get("stdout", ""))
        for node in nodes.values():
            node["leaf"] = known.get(node["slurm_name"], "")

    def _keys(self, nodes: dict[str, Any], settings: dict[str, Any]) -> tuple[str, str]:
        """What a pass proves (these hosts, these settings), and what a baseline belongs to (this kind of hardware)."""
        matter = {key: value for key, value in settings.items() if key not in INCIDENTAL}
        kinds = sorted(
            {
                json.dumps([node["capability"][key] for key in ("product", "gpus", "driver")] + [node["software"]])
                for node in nodes.values()
            }
        )
        whole = json.dumps([nodes, matter], sort_keys=True, default=str)
        kind = json.dumps([kinds, len(nodes), settings["end"], settings["environment"]], sort_keys=True, default=str)
        return launching.fingerprint(whole), launching.fingerprint(kind)

    def _launcher(self) -> str:
        answer = self._low_level_execute_command("scontrol ping")
        return "slurm" if answer.get("rc") == 0 and " UP" in answer.get("stdout", "") else "mpirun"

    def _launch(self, launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One round: all launches side by side on the launch host, with a line now and then while it lasts."""
        began, lost = time.monotonic(), 0
        answer = self._ask({"launches": launches, "parallel": self.parallel, "wait": LOOK})
        job = str(answer.get("job", ""))
        while job and not answer.get("finished"):
            if "ended" in answer:
                lost = 0
                self._say(progress(launches, answer["ended"], time.monotonic() - began, self.parallel))
            elif (lost := lost + 1) > LOST:
                break
            else:
                time.sleep(lost)
            answer = self._ask({"job": job, "wait": LOOK})
        if len(answer.get("outcomes", [])) == len(launches):
            return list(answer["outcomes"])
        text = str(answer.get("msg") or answer.get("module_stderr") or "the launch host gave no answer")
        empty = {"rc": None, "stdout": "", "stderr": text, "seconds": 0.0, "timed_out": False}
        return [{**empty, "name": launch["name"]} for launch in launches]

    def _ask(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.launcher and self.launcher.lease:
            arguments["lease"] = self.launcher.lease
        answer: dict[str, Any] = self._execute_module(
            module_name="gpuops.cluster.nccl_launch", module_args=arguments, task_vars=self.task_vars
        )
        return answer

    def _say(self, text: str) -> None:
        display.display(f"gate: {text}")
