# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the figures of pytorch_env's training check: results of the acceptance report. Private to this collection.

All ranks have a batch of the same size, so that efficiency, throughput(N) / (N x throughput(1)), is the time of a step
on one rank divided by the time of a step on N.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

TITLES = {
    "data_parallel": "data parallel (DDP)",
    "sharded": "sharded data parallel (FSDP2)",
    "gradient_accumulation": "gradient accumulation",
    "pipeline": "pipeline parallel",
    "tensor_parallel": "tensor parallel",
}
# Parts of a step, and what a step has more of them than on one rank is called.
PARTS = {
    "compute": "computing slower than one rank alone",
    "imbalance": "waiting for the slowest rank",
    "communication": "communication",
    "data": "waiting for data",
}

HINTS = {
    "compute": "Look at clocks, power and temperature while all GPUs work, and at the cores that each rank may use",
    "imbalance": "Look at the slowest rank: clocks, temperature, other processes, the width of its PCIe link",
    "communication": "Look at the gate's bandwidth and at what NCCL_DEBUG=INFO says of its transport and interfaces",
    "data": "Raise pytorch_env_data_workers, or look at where the data lies",
}


@dataclass
class Limits:
    """What is demanded; see the role's variables pytorch_env_training_*."""

    efficiency: float = 0.875
    data_wait: float = 0.1
    straggler: float = 1.15


def split(entry: dict[str, Any]) -> dict[str, float]:
    """Seconds of a step by PARTS, and `step`: medians over the ranks, the slowest rank apart."""
    each = entry["each"]
    compute = statistics.median(rank["compute_s"] for rank in each)
    slowest = max(rank["compute_s"] for rank in each)
    data = statistics.median(rank["data_s"] for rank in each)
    step = statistics.median(rank["step_s"] for rank in each)
    # Where a step alone is no shorter than one together, all of it is computing.
    compute = min(compute, max(step - data, 0.0))
    imbalance = min(slowest - compute, max(step - data - compute, 0.0))
    rest = max(step - data - compute - imbalance, 0.0)
    return {"compute": compute, "imbalance": imbalance, "communication": rest, "data": data, "step": step}


def efficiency(entry: dict[str, Any], one: dict[str, Any]) -> float:
    return split(one)["step"] / split(entry)["step"]


def held_back(entry: dict[str, Any], one: dict[str, Any]) -> tuple[str, float]:
    """What of a step grew most since one rank, and which share of a step that is; empty where nothing did."""
    now, then = split(entry), split(one)
    grew = {part: now[part] - then[part] for part in PARTS}
    part = max(grew, key=lambda name: grew[name])
    return (part, grew[part] / now["step"]) if grew[part] > 0 else ("", 0.0)


def milliseconds(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {1000 * parts[name]:.3g}" for name in PARTS if parts[name] > 0) + " ms"


class Judge:
    """One run of the check. `names`: host name of a node to its name in the inventory."""

    def __init__(self, found: dict[str, Any], names: dict[str, str], limits: Limits) -> None:
        self.found, self.names, self.limits = found, names, limits
        self.ranks = found["ranks"]
        self.nodes = list(dict.fromkeys(self.host(rank) for rank in range(len(self.ranks))))
        self.culprits: list[dict[str, str]] = []
        self.warnings: list[str] = []
        self.next_action = ""

    def host(self, rank: int) -> str:
        name = self.ranks[rank]["host"]
        return self.names.get(name) or self.names.get(name.split(".")[0]) or str(name)

    def who(self, rank: int) -> str:
        what = "CPU process" if self.ranks[rank]["name"] == "CPU" else "GPU"
        return f"{self.host(rank)} {what} {self.ranks[rank]['device']}"

    def blame(self, rank: int, evidence: str) -> None:
        device = "" if self.ranks[rank]["name"] == "CPU" else str(self.ranks[rank]["device"])
        kind = "gpu" if device else "node"
        self.culprits.append({"kind": kind, "host": self.host(rank), "device": device, "evidence": evidence})

    def mode(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        """One way of training in parallel: right when every rank's numbers are those of one process."""
        title = f"{TITLES[answers[0]['mode']]}: numbers of one process"
        if "skipped" in answers[0]:
            return self.row(title, "skipped", answers[0]["skipped"])
        worst = max(range(len(answers)), key=lambda rank: answers[rank]["error"])
        wrong = [rank for rank, answer in enumerate(answers) if not answer["right"]]
        error, tolerance = answers[worst]["error"], self.found["tolerance"]
        figures = [{"name": "largest relative difference", "value": error, "unit": "", "expected": tolerance}]
        if not wrong:
            return self.row(title, "pass", f"differs by at most {error:.1g} on {len(answers)} ranks", figures)
        text = (
            f"{answers[worst]['of']} differs by {error:.1g} on {self.who(worst)}, at most {tolerance:.0g} is rounding"
        )
        if len(wrong) < len(answers) / 2:  # what most ranks have wrong came from elsewhere
            for rank in wrong:
                self.blame(
                    rank, f"{TITLES[answers[0]['mode']]}: {answers[rank]['of']} is wrong here and not on most ranks"
                )
        return self.row(title, "fail", f"wrong on {len(wrong)} of {len(answers)} ranks: {text}", figures)

    def row(self, check: str, status: str, reason: str, figures: Any = (), nodes: Any = None) -> dict[str, Any]:
        return {"check": check, "nodes": nodes or self.nodes, "status": status, "reason": reason, "figures": [*figures]}

    def scaling(self) -> dict[str, Any]:
        """Efficiency over all ranks, with the reason for what is missing."""
        one, last = self.found["scaling"][0], self.found["scaling"][-1]
        title, parts = "scaling from one process to all", split(last)
        rate = last["samples"] / parts["step"] * last["ranks"]
        figures = [{"name": "throughput", "value": rate, "unit": "samples/s"}]
        figures += [{"name": f"{part} of a step", "value": 1000 * parts[part], "unit": "ms"} for part in PARTS]
        if last["ranks"] == 1:
            return self.row(title, "skipped", "there is one process only", figures)
        reached = efficiency(last, one)
        wanted = {"floor": self.limits.efficiency}
        figures = [{"name": "efficiency", "value": reached, "unit": "", **wanted}, *figures]
        where = f"{last['ranks']} ranks on {len(self.nodes)} {'node' if len(self.nodes) == 1 else 'nodes'}"
        part, share = held_back(last, one)
        text = f"{reached:.1%} on {where}; a step: {milliseconds(parts)}"
        text += f"; most is lost to {PARTS[part]}, {share:.0%} of a step" if part else ""
        if reached >= self.limits.efficiency:
            return self.row(title, "pass", text, figures)
        self.next_action = f"{HINTS[part]}: {text}." if part else ""
        if part == "imbalance":
            rank = max(range(last["ranks"]), key=lambda number: last["each"][number]["compute_s"])
            self.blame(rank, f"slowest rank: {1000 * last['each'][rank]['compute_s']:.3g} ms of computing a step")
        return self.row(title, "fail", f"{text}; {self.limits.efficiency:.1%} is demanded", figures)

    def balance(self) -> dict[str, Any]:
        """Is every rank as fast as the others while nothing is communicated? Names the slowest."""
        each = [rank["compute_s"] for rank in self.found["scaling"][-1]["each"]]
        usual = statistics.median(each)
        slowest = max(range(len(each)), key=each.__getitem__)
        ratio = each[slowest] / usual
        figures = [{"name": "slowest to median", "value": ratio, "unit": "x"}]
        text = f"the slowest is {self.who(slowest)}: {1000 * each[slowest]:.3g} ms of computing a step"
        text += f", median {1000 * usual:.3g}"
        slow = [rank for rank, seconds in enumerate(each) if seconds > self.limits.straggler * usual]
        if slow:
            named = ", ".join(f"{self.who(rank)} ({each[rank] / usual:.2f} x)" for rank in slow[:8])
            self.warnings.append(f"{len(slow)} of {len(each)} ranks compute slower than the others: {named}")
        return self.row("balance between ranks", "pass", text, figures)

    def data(self) -> list[dict[str, Any]]:
        """Do the data loaders and the data path give what training takes?"""
        last, loaders = self.found["scaling"][-1], self.found["data"]
        parts = split(last)
        share = max(rank["data_s"] / rank["step_s"] for rank in last["each"])
        waiting = max(range(last["ranks"]), key=lambda rank: last["each"][rank]["data_s"])
        needed = last["samples"] / parts["step"]
        slowest = min(range(len(loaders)), key=lambda rank: loaders[rank]["samples_per_second"])
        given, workers = loaders[slowest]["samples_per_second"], loaders[slowest]["workers"]
        real = bool(loaders[0]["path"])
        figures = [
            {"name": "idle for want of data", "value": share, "unit": "", "expected": self.limits.data_wait},
            {"name": "loaders give", "value": given, "unit": "samples/s", "floor": needed},
            {"name": "workers a rank", "value": workers, "unit": ""},
        ]
        text = f"{self.who(waiting)} waits for data {share:.0%} of a step; loaders of a rank: {workers}"
        text += f" on {loaders[slowest]['cores']} cores; they give {given:.4g} samples/s, training takes {needed:.4g}"
        slow = share > self.limits.data_wait
        if slow and not real:
            self.warnings.append(f"data loading of made-up samples: {text}")
        title = "data loading" if real else "data loading (made-up samples; pytorch_env_data_path is not set)"
        rows = [self.row(title, "fail" if slow and real else "pass", text, figures)]
        return rows + self.reading(needed) if real else rows

    def reading(self, needed: float) -> list[dict[str, Any]]:
        """Read rate of each node against what its ranks need, all nodes at the same time."""
        size = self.found["sample_bytes"]
        local = len(self.ranks) // len(self.nodes)
        rates = {self.host(rank): one["read"] for rank, one in enumerate(self.found["data"]) if one["read"]}
        title = f"read rate of {self.found['data'][0]['path']}"
        empty = [host for host in self.nodes if host not in rates]
        if empty:
            return [self.row(title, "fail", "there are no files to read", nodes=empty)]
        want = needed * size * local
        host = min(rates, key=lambda name: rates[name]["bytes_per_second"])
        rate = rates[host]["bytes_per_second"]
        figures = [{"name": "slowest node", "value": rate / 1e6, "unit": "MB/s", "floor": want / 1e6}]
        text = f"{host} reads {rate / 1e6:.4g} MB/s ({rates[host]['by']}), its {local} ranks need {want / 1e6:.4g}"
        return [self.row(title, "pass" if rate >= want else "fail", text, figures)]

    def plots(self) -> list[dict[str, Any]]:
        """What the page draws: throughput against ideal, and the time of a step by rank."""
        one = self.found["scaling"][0]["samples"] / split(self.found["scaling"][0])["step"]
        points = [[e["ranks"], e["samples"] / split(e)["step"] * e["ranks"]] for e in self.found["scaling"]]
        ideal = [[1, one], [points[-1][0], one * points[-1][0]]]
        last = self.found["scaling"][-1]["each"]
        bars = [
            [
                self.who(rank),
                1000 * r["compute_s"],
                1000 * max(r["step_s"] - r["compute_s"] - r["data_s"], 0),
                1000 * r["data_s"],
            ]
            for rank, r in enumerate(last)
        ]
        return [
            {
                "kind": "lines",
                "title": "Throughput by ranks, samples/s",
                "series": {"measured": points, "ideal": ideal},
            },
            {
                "kind": "bars",
                "title": "A step of each rank, ms",
                "parts": ["computing", "communication and waiting", "data"],
                "bars": bars,
            },
        ]
