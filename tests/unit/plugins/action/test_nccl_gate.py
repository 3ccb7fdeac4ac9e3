# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the gate measures, what it leaves behind, and what makes the task fail."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpuops.cluster.plugins.action import nccl_gate
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_judge import bytes_of
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_model import capability

GPU = {"state": "ok", "devices": [{"index": i, "name": "NVIDIA L4"} for i in range(2)], "driver": {"version": "580"}}
CELL = "   {took:.1f}  {rate:>6.2f}  {rate:>6.2f}      0"
ROW = f"   {{size}}      {{count}}     float     sum      -1{CELL}{CELL}"


def log(ranks: int, rate: float, size: int) -> str:
    devices = [f"#  Rank {r:2d} Group  0 Pid {r:6d} on n1 device {r:2d} [0000:0{r}:00] NVIDIA L4" for r in range(ranks)]
    head = [
        "# nThread 1 nGpus 1 minBytes 1 maxBytes 2 step: 2(factor) warmup iters: 5 iters: 20",
        "# Using devices",
        *devices,
    ]
    tail = ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {rate}"]
    return "\n".join([*head, ROW.format(rate=rate, size=size, count=size // 4, took=size / rate / 1e3), *tail]) + "\n"


class Action(nccl_gate.ActionModule):
    """The action without Ansible around it: launches are answered as by mpirun on good nodes."""

    def __init__(self, rate: float = 20.0, check_mode: bool = False, **settings: Any) -> None:
        self._task = SimpleNamespace(check_mode=check_mode)
        self.rate, self.settings, self.launched = rate, settings, 0
        self.said: list[str] = []
        self.drains: list[list[str]] = []

    def validate_argument_spec(self, argument_spec: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        defaults = {name: option.get("default") for name, option in argument_spec.items()}
        return None, {**defaults, **self.settings}

    def _low_level_execute_command(self, command: str) -> dict[str, Any]:
        return {"rc": 127, "stdout": ""}

    def _execute_module(self, module_args: dict[str, Any], **_given: Any) -> dict[str, Any]:
        self.launched += len(module_args["launches"])
        return {"outcomes": [self.answer(launch) for launch in module_args["launches"]]}

    def answer(self, launch: dict[str, Any]) -> dict[str, Any]:
        probe = "GATE\tname=n1\tmemlock=64\tshm_mib=9999\tbinaries=b\tmissing=\tnccl=n\tloopback=\n"
        command = launch["command"]
        size = int(bytes_of(command[command.index("-e") + 1])) if "-e" in command else 1
        text = probe if "probe" in launch["name"] else log(2, self.rate, size)
        text = "7\n" if command[0] == "squeue" else text
        if "drain" in launch["command"]:
            self.drains.append(launch["command"][-2:])
        errors = "salloc: Granted job allocation 7" if launch["command"][0] == "salloc" else ""
        return {"name": launch["name"], "rc": 0, "stdout": text, "stderr": errors, "seconds": 1.0, "timed_out": False}

    def _say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(autouse=True)
def bare_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_given: {})


def gate(folder: Path, software: str = "k d", **given: Any) -> tuple[dict[str, Any], Action]:
    node = {"slurm_name": "n1", "mpi_host": "n1", "aliases": ["n1"], "leaf": "", "identity": [], "software": software}
    nodes = {"n1": {**node, "capability": capability(GPU)}}
    usual = {"nodes": nodes, "binaries": "/opt/b", "report_dir": str(folder), "expected": {"node": 20}}
    action = Action(**{**usual, **given})
    return action.run(task_vars={}), action


def test_pass_is_written_and_stays_valid(tmp_path: Path) -> None:
    result, action = gate(tmp_path)
    assert (result["verdict"], result["changed"], result.get("failed")) == ("pass", True, None)
    assert action.launched == 1 + 3 + 3, "probe, launches, counters before, during and after"
    names = {path.name for path in tmp_path.iterdir()}
    assert {
        "acceptance.json",
        "acceptance.junit.xml",
        "acceptance.prom",
        "acceptance.html",
        "logs",
        "baselines",
    } == names
    result, action = gate(tmp_path)
    assert (result["verdict"], result["changed"], action.launched) == ("pass", False, 0)
    assert "still proven" in action.said[0]


@pytest.mark.parametrize(
    "change", [{"software": "k2 d2"}, {"always": True}, {"valid_days": 0}, {"end": "2G"}, {"floor": 0.5}]
)
def test_what_makes_it_measure_again(tmp_path: Path, change: dict[str, Any]) -> None:
    gate(tmp_path)
    if "valid_days" in change:
        report = json.loads((tmp_path / "acceptance.json").read_text())
        (tmp_path / "acceptance.json").write_text(json.dumps({**report, "finished": "2020-01-01T00:00:00Z"}))
    assert gate(tmp_path, **change)[1].launched > 0


@pytest.mark.parametrize("change", [{"note": "lab"}, {"parallel": 3}, {"wait": 5}, {"drain": True}])
def test_what_does_not(tmp_path: Path, change: dict[str, Any]) -> None:
    gate(tmp_path)
    assert gate(tmp_path, **change)[1].launched == 0


def test_failure_fails_the_task_after_the_report(tmp_path: Path) -> None:
    result, _action = gate(tmp_path, rate=3.0)
    assert (result["failed"], result["verdict"]) == (True, "fail")
    assert "n1" in result["msg"]
    assert str(tmp_path / "acceptance.html") in result["msg"]
    assert json.loads((tmp_path / "acceptance.json").read_text())["verdict"] == "fail"
    assert not (tmp_path / "baselines").exists(), "only passing runs are a baseline"
    assert gate(tmp_path, rate=3.0)[1].launched > 0, "a failure is measured again"


def test_guilty_node_is_drained_with_the_reason(tmp_path: Path) -> None:
    result, action = gate(tmp_path, rate=3.0, launcher="slurm", drain=True)
    assert (result["verdict"], result["drained"]) == ("fail", ["n1"])
    assert [node for node, _reason in action.drains] == ["n1"]
    assert action.drains[0][1].startswith("nccl_tests: alone: 3 GB/s, below the floor of 18 GB/s")
    assert json.loads((tmp_path / "acceptance.json").read_text())["drained"] == ["n1"]
    assert "Drained in Slurm:</b> n1" in (tmp_path / "acceptance.html").read_text(encoding="utf-8")
    result, action = gate(tmp_path, rate=3.0, launcher="slurm")
    assert (result["drained"], action.drains) == ([], []), "only where it is wanted"


def test_guilty_node_is_drained_where_mpirun_starts_jobs(tmp_path: Path) -> None:
    result, action = gate(tmp_path, rate=3.0, launcher="mpirun", drain=True)
    assert (result["drained"], [node for node, _reason in action.drains]) == (["n1"], ["n1"])


def test_drain_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Action.answer

    def refuse(self: Action, launch: dict[str, Any]) -> dict[str, Any]:
        bad = (
            {"rc": 1, "stderr": "slurm_update error: Access/permission denied"} if "drain" in launch["command"] else {}
        )
        return {**usual(self, launch), **bad}

    monkeypatch.setattr(Action, "answer", refuse)
    result, action = gate(tmp_path, rate=3.0, launcher="slurm", drain=True)
    assert (result["verdict"], result["drained"]) == ("fail", [])
    assert "n1 could not be drained in Slurm: slurm_update error: Access/permission denied" in action.said
    report = json.loads((tmp_path / "acceptance.json").read_text())
    assert "could not be drained" in report["warnings"][-1]


LAUNCHES = [{"name": f"nodes-n{i}-1", "timeout": 600.0, "command": [], "environment": {}} for i in range(1, 4)]


def answers(monkeypatch: pytest.MonkeyPatch, *given: dict[str, Any]) -> tuple[Action, list[dict[str, Any]]]:
    """An action whose launch host answers so, one after the other, and what it is asked."""
    left, asked = list(given), []

    def answer(self: Action, module_args: dict[str, Any], **_given: Any) -> dict[str, Any]:
        asked.append(module_args)
        return left.pop(0)

    monkeypatch.setattr(Action, "_execute_module", answer)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    action = Action()
    action.parallel, action.task_vars = 2, {}
    return action, asked


OUTCOMES = [{"name": launch["name"], "rc": 0} for launch in LAUNCHES]
GOING = {"finished": False, "job": "/tmp/j", "ended": ["nodes-n1-1"], "outcomes": []}


def test_a_long_round_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    last = {"finished": True, "job": "/tmp/j", "ended": [], "outcomes": OUTCOMES}
    action, asked = answers(monkeypatch, GOING, {**GOING, "ended": ["nodes-n1-1", "nodes-n3-1"]}, last)
    assert action._launch(LAUNCHES) == OUTCOMES
    assert [one.get("job") for one in asked] == [None, "/tmp/j", "/tmp/j"]
    assert action.said[0].startswith("1 of 3 ended after 0 s, at most 1200 s left: nodes-n2-1, nodes-n3-1")
    assert action.said[1].endswith("nodes-n2-1")


def test_an_answer_that_goes_astray_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"unreachable": True, "msg": "connection reset"}
    last = {"finished": True, "job": "/tmp/j", "ended": [], "outcomes": OUTCOMES}
    action, _asked = answers(monkeypatch, GOING, broken, broken, last)
    assert action._launch(LAUNCHES) == OUTCOMES


def test_a_launch_host_that_is_gone_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"unreachable": True, "msg": "connection reset"}
    action, asked = answers(monkeypatch, GOING, *([broken] * 20))
    outcomes = action._launch(LAUNCHES)
    assert {(one["rc"], one["stderr"]) for one in outcomes} == {(None, "connection reset")}
    assert len(asked) < 10


TOPOLOGY = "LEAF leafa n1\nLEAF leafa n2\nLEAF leafb n3\nsomething else\n"


@pytest.mark.parametrize(
    ("declared", "answer", "expected"),
    [
        ("", TOPOLOGY, ["leafa", "leafa", "leafb"]),
        ("mine", TOPOLOGY, ["mine", "mine", "mine"]),
        ("", TOPOLOGY.replace("leafb", "leafa"), ["", "", ""]),
        ("", "", ["", "", ""]),
    ],
)
def test_leaves_are_those_of_slurm_where_none_is_declared(
    monkeypatch: pytest.MonkeyPatch, declared: str, answer: str, expected: list[str]
) -> None:
    monkeypatch.setattr(Action, "_low_level_execute_command", lambda _self, _command: {"rc": 0, "stdout": answer})
    nodes = {f"h{i}": {"slurm_name": f"n{i}", "leaf": declared} for i in (1, 2, 3)}
    Action()._leaves(nodes, {"launcher": "slurm"})
    assert [node["leaf"] for node in nodes.values()] == expected


def test_check_mode_plans_and_starts_nothing(tmp_path: Path) -> None:
    result, action = gate(tmp_path / "new", check_mode=True)
    assert (result["changed"], action.launched) == (True, 0)
    assert any("expected 20 GB/s, floor 18" in line for line in result["plan"])
    assert not (tmp_path / "new").exists()


def test_host_that_failed_before_blocks_even_a_valid_pass(tmp_path: Path) -> None:
    gate(tmp_path)
    result, action = gate(tmp_path, absent=["n2"])
    assert (result["failed"], result["verdict"], action.launched) == (True, "blocked", 0)


def test_regression_against_earlier_passes(tmp_path: Path) -> None:
    gate(tmp_path)
    result, _action = gate(tmp_path, rate=18.5, always=True)
    assert result["verdict"] == "fail"
    assert "baseline" in result["msg"]


def test_compared_with_another_run(tmp_path: Path) -> None:
    gate(tmp_path)
    _result, action = gate(tmp_path, rate=18.5, always=True, margin=0.5, compare_to=str(tmp_path))
    compared = json.loads((tmp_path / "acceptance.json").read_text())["compared"]
    assert [(one["before"], one["after"]) for one in compared["tests"]] == [(20.0, 18.5)]
    assert any("20 to 18.5 (-7.5%)" in line for line in action.said)


@pytest.mark.parametrize(("text", "words"), [(None, "No such file"), ("{", "not JSON"), ("{}", "no acceptance report")])
def test_what_cannot_be_compared_is_refused_before_measuring(tmp_path: Path, text: Any, words: str) -> None:
    other = tmp_path / "other.json"
    if text is not None:
        other.write_text(text, encoding="utf-8")
    with pytest.raises(AnsibleActionFail, match=words):
        gate(tmp_path, compare_to=str(other))


def test_launch_host_that_gives_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Action, "_execute_module", lambda *_words, **_given: {"msg": "ssh: connection lost"})
    result, _action = gate(tmp_path)
    assert result["verdict"] == "blocked"
    assert "connection lost" in result["msg"]
