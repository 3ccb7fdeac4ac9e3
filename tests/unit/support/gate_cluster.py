# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster that answers the gate's command lines, for its tests."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Optional

import jsonschema
import yaml
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_report
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_model import busbw_factor
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_run import Gate
from ansible_collections.gpuops.cluster.plugins.modules import nccl_gate

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
OPTIONS = yaml.safe_load(nccl_gate.DOCUMENTATION)["options"]


def settings(**given: Any) -> dict[str, Any]:
    defaults = {name: option["default"] for name, option in OPTIONS.items() if "default" in option}
    return {**defaults, "launcher": "slurm", "binaries": "/opt/nccl-tests/bin", **given}


def node(name: str, **given: Any) -> dict[str, Any]:
    capability = {
        "state": "ok",
        "reason": "",
        "problems": [],
        "gpus": 8,
        "product": "NVIDIA H100 80GB HBM3",
        "driver": "580.95.05",
        "mig": False,
        "labels": [["NV18"] * 8] * 8,
        "ring": {"gbps": 370.8, "why": "ring over NVSwitch"},
        "peak": {"gbps": 480.0, "why": "NVLS"},
        "network": {"gbps": 400.0, "why": "NICs 8 x 400 Gbit/s", "kind": "rdma", "nics": 8},
        **given,
    }
    return {
        "slurm_name": name,
        "mpi_host": name,
        "aliases": [name],
        "leaf": "",
        "gpus": capability["gpus"],
        "capability": capability,
    }


BROKEN = ("hang", "crash", "wrong", "usage", "copies")


class Cluster:
    """Answers the gate's command lines like Slurm with nccl-tests on good nodes, but for the faults given."""

    def __init__(self, **faults: Any) -> None:
        self.faults, self.rng = faults, random.Random(5)
        self.commands: list[list[str]] = []
        self.seen: set[str] = set()
        self.counts: dict[str, int] = {}
        self.said: list[str] = []
        self.logs: dict[str, str] = {}

    def run(self, launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.commands += [launch["command"] for launch in launches]
        return [{"name": launch["name"], **self.answer(launch)} for launch in launches]

    def answer(self, launch: dict[str, Any]) -> dict[str, Any]:
        words = launch["command"]
        outcome = {"rc": 0, "stdout": "", "stderr": "", "seconds": 2.0, "timed_out": False}
        if words[0] == "salloc":
            if reason := self.faults.get("salloc"):
                return {**outcome, "rc": 1, "stderr": f"salloc: error: {reason}"}
            return {**outcome, "stderr": "salloc: Granted job allocation 7"}
        if words[0] == "scancel":
            return outcome
        if launch["name"] == "guard":
            return outcome
        if words[0] == "squeue":
            return {**outcome, "stdout": "3\n" if self.faults.get("lost") else "3\n7\n"}
        return self.step(launch, words, outcome)

    def step(self, launch: dict[str, Any], words: list[str], outcome: dict[str, Any]) -> dict[str, Any]:
        label = launch["name"]
        names = next(word for word in words if word.startswith("--nodelist=")).partition("=")[2].split(",")
        if "collect" in words:
            said = [f"Using network {name}" for name in self.faults.get("ways", ["IB"])] + self.faults.get("said", [])
            return {**outcome, "stdout": "".join(f"WAY\t8\t{way}\n" for way in said)}
        if "ports" in words or "counters" in words or label.startswith("wire-"):
            return {**outcome, **self.look(label)}
        if "sh" in words:
            return {**outcome, "stdout": "".join(self.probe(name) for name in names)}
        if self.faults.get("first_start") and label not in self.seen:
            self.seen.add(label)
            return {**outcome, "rc": 139, "stderr": "srun: error: n1: task 5: Segmentation fault"}
        if (rail := launch["environment"].get("NCCL_IB_HCA", "")).startswith("="):
            rates = {tuple(key.split("~")): rate for key, rate in self.faults.get("rails", {}).items()}
            slow = min([rates.get((host, rail[1:]), 1) for host in [*names, "*"]])
            busbw = 45 * slow * self.rng.gauss(1, 0.004)
            return {**outcome, "stdout": self.table("all_reduce", 8 * len(names), [busbw / 2, busbw])}
        return self.perf(words, names, outcome)

    def look(self, label: str) -> dict[str, Any]:
        """What tasks beside nccl-tests say: ports, counters, the wire."""
        if label.startswith("wire-"):
            return dict(self.faults["wire"](label))
        if label.startswith("counters-"):
            return {"stdout": self.faults.get("counters", {}).get(label.removeprefix("counters-"), "")}
        return {"stdout": self.faults.get("ports", "")}

    def probe(self, name: str) -> str:
        fields = {"name": name, "memlock": "unlimited", "shm_mib": "64000", "binaries": "b", "libmpi": "m"}
        fields |= {
            "libnccl": "l",
            "plugins": "",
            "busy": "",
            "missing": "",
            "nccl": "n",
            "loopback": "",
            **self.faults.get("probe", {}).get(name, {}),
        }
        return "GATE\t" + "\t".join(f"{key}={value}" for key, value in fields.items()) + "\n"

    def perf(self, words: list[str], names: list[str], outcome: dict[str, Any]) -> dict[str, Any]:
        collective = next(word for word in words if word.endswith("_perf")).split("/")[-1][: -len("_perf")]
        ranks = int(next(word for word in words if word.startswith("--ntasks=")).partition("=")[2])
        gpus = re.search(r"CUDA_VISIBLE_DEVICES=([\d,]+)", " ".join(words))
        devices = {int(number) for number in gpus.group(1).split(",")} if gpus else set(range(8))
        usual = 479.0 if len(names) == 1 and not gpus else 366.0
        usual = 48.5 * (ranks - 1) / (ranks - 8) if collective == "alltoall" else usual
        usual *= self.rng.gauss(1, self.faults.get("noise", 0.004))
        for victim, (kind, value) in self.faults.get("nodes", {}).items():
            if not self.concerns(victim, kind, names, devices, collective):
                continue
            if kind in BROKEN:
                return {**outcome, **self.broken(kind, collective, ranks, usual)}
            usual *= 0.6 if kind == "once" else value
        return {**outcome, "stdout": self.table(collective, ranks, [usual / 2, usual])}

    def concerns(self, victim: str, kind: str, names: list[str], devices: set[int], collective: str) -> bool:
        """Whether a launch on these nodes and GPUs meets the fault of this victim: host, host/gpu or host+host."""
        host, _slash, gpu = victim.partition("/")
        members = set(host.split("+"))
        if not members <= set(names) or (gpu and int(gpu) not in devices):
            return False
        if kind == "once" and len(names) == 2:  # in the whole cluster, and in the first three launches of a pair
            self.counts[victim] = self.counts.get(victim, 0) + 1
            return self.counts[victim] <= 3
        least = {"together": 2, "once": 2, "alltoall": 2, "crowd": 3}.get(kind, 1)
        return len(names) >= least and (kind != "alltoall" or collective == kind)

    def broken(self, kind: str, collective: str, ranks: int, usual: float) -> dict[str, Any]:
        """What a launch that is no measurement ends as."""
        if kind == "hang":
            return {"rc": -9, "timed_out": True, "seconds": 600.0}
        if kind == "crash":
            return {"rc": 3, "stderr": "Test NCCL failure common.cu:450"}
        if kind == "wrong":
            return {"rc": 7, "stdout": self.table(collective, ranks, [usual], wrong=5)}
        one = json.loads(self.table(collective, 1, [usual]))
        return {"stdout": "[]" if kind == "usage" else json.dumps(one * ranks)}

    def table(self, collective: str, ranks: int, rates: list[float], wrong: int = 0) -> str:
        """What the filter would return, as JSON: the gate's `parse` is json.loads here."""
        rows = []
        for power, busbw in enumerate(rates):
            bytes_ = 2**29 << power
            took = bytes_ / (busbw / busbw_factor(collective, ranks)) / 1e3
            cell = {"time_us": took, "algbw": 0.0, "busbw": round(busbw, 2), "wrong": wrong}
            rows.append({"size": bytes_, "out_of_place": cell, "in_place": cell})
        problems = (["wrong_data"] if wrong else []) + (["single_rank"] if ranks == 1 else [])
        return json.dumps(
            [{"collective": collective, "ranks": ranks, "rows": rows, "wrong": wrong, "problems": problems}]
        )


def gate(cluster: Cluster, nodes: Any = 4, baseline: Optional[dict[str, float]] = None, **given: Any) -> dict[str, Any]:
    """Run the gate and return its report, checked against the schema."""
    if isinstance(nodes, int):
        nodes = {f"n{i}": node(f"n{i}") for i in range(1, nodes + 1)}

    def parse(text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(text) if text.strip() else []
        return rows

    one = Gate(settings(**given), nodes, cluster.run, parse, cluster.said.append, cluster.logs.__setitem__, baseline)
    one.run()
    kept = {"key": "k", "proof": "p", "values": one.baseline}
    report = _gate_report.document(one, "2026-11-30T03:00:00Z", "2026-11-30T03:05:00Z", kept, "lab")
    jsonschema.validate(report, SCHEMA)
    ET.fromstring(_gate_report.junit(report))
    assert "<script" not in _gate_html.page(report)
    assert json.loads(json.dumps(report)) == report
    return report


def guilty(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(one["kind"], one["host"], one["device"]) for one in report["culprits"]}
