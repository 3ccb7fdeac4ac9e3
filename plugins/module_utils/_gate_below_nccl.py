# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies below NCCL, measured where the tools are: iperf3 between pairs without RDMA, ib_write_bw rail by rail with
it, nvbandwidth from host to GPUs.

Pairs are disjoint and run side by side. A tool that gives no figure is skipped with its words. iperf3's figure is what
NCCL over TCP is held against; the others have floors of their own.
"""

from __future__ import annotations

import json
import re
import statistics
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_stages as stages
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_judge import last_words

SECONDS = 5
PORT = 27515
TCP_SHARE = 0.6  # NCCL's sockets reach about this share of the wire
PEERS = 0.8  # share of the fleet's median that a GPU must reach from its host
# $1 name and $2 address of the node that serves, then the command of both sides; the client adds the address.
PAIR = r"""
server=$1 address=$2 tool=$3
shift 3
me=${SLURMD_NODENAME:-$(hostname -s)}
if [ "$me" = "$server" ]; then
  case $tool in
    iperf3) timeout 60 iperf3 -s -1 -p "$1" >/dev/null 2>&1 ;;
    *) timeout 60 ib_write_bw -F --report_gbits -D "$2" -p "$1" -d "$3" ${4:+-x "$4"} >/dev/null 2>&1 ;;
  esac
  exit 0
fi
for turn in 1 2 3 4 5 6 7 8; do
  sleep 1
  case $tool in
    iperf3) timeout 60 iperf3 -c "$address" -p "$1" -P 8 -t "$2" -J && exit 0 ;;
    *) timeout 60 ib_write_bw -F --report_gbits -D "$2" -p "$1" -d "$3" ${5:+-x "$5"} "$address" && exit 0 ;;
  esac
done
exit 1
"""


def iperf3_gbps(text: str) -> Optional[float]:
    """GB/s that arrived, from iperf3's JSON, of whichever try succeeded last."""
    found = None
    for match in re.finditer(r"^\{\s*$", text, re.MULTILINE):
        try:
            answer, _end = json.JSONDecoder().raw_decode(text, match.start())
            found = float(answer["end"]["sum_received"]["bits_per_second"]) / 8e9
        except (ValueError, KeyError, TypeError):
            continue
    return found


def perftest_gbps(text: str) -> Optional[float]:
    """GB/s on average, from the table of ib_write_bw with --report_gbits: bytes, iterations, peak, average, rate."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", text, re.MULTILINE)
    return float(rows[-1]) / 8 if rows else None


def nvbandwidth_gbps(text: str) -> list[float]:
    """GB/s from host to each GPU: the row of the matrix that follows its title."""
    after = text.partition("host_to_device_memcpy_ce")[2]
    match = re.search(r"^\s*0((?:\s+\d+\.\d+)+)\s*$", after, re.MULTILINE)
    return [float(value) for value in match.group(1).split()] if match else []


class Wire:
    """`gate` is a Gate that has probed its nodes; a stage and culprits are added to it. `names` are asked."""

    def __init__(self, gate: Any, names: list[str]) -> None:
        self.gate, self.names = gate, names
        self.checks: list[dict[str, Any]] = []
        self.launches = 0

    def _probe(self, name: str) -> dict[str, str]:
        found = self.gate.probes
        return next((found[alias] for alias in self.gate.nodes[name]["aliases"] if alias in found), {})

    def _with(self, tool: str) -> list[str]:
        return [name for name in self.names if tool in self._probe(name).get("tools", "").split()]

    def _pairs(self, tool: str) -> list[tuple[str, str]]:
        """Disjoint pairs of nodes that have the tool, across leaves, as in the first round of the isolation."""
        names = sorted(self._with(tool), key=lambda name: str(self.gate.nodes[name].get("leaf") or ""))
        half = len(names) // 2
        return list(zip(names[:half], names[half : 2 * half]))

    def run(self) -> None:
        between = len(self.names) > 1 and "cluster" in self.gate.settings["stages"]
        rdma = all(self.gate.nodes[name]["capability"]["network"]["kind"] == "rdma" for name in self.names)
        if between and rdma:
            self._rails()
        elif between:
            self._tcp()
        self._hosts()
        if self.checks:
            self.gate.stages.append(stages.stage("wire", "What lies below NCCL", self.checks, self.launches))
            good = sum(check["status"] == "pass" for check in self.checks)
            self.gate.say(f"wire: {good} of {len(self.checks)} checks of links are good")

    def _launch(self, label: str, names: list[str], command: list[str], beside: bool) -> dict[str, Any]:
        spec: dict[str, Any] = self.gate.spec({"names": names}, command, 1, label, beside, 180.0)
        return spec

    def _start(self, specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.launches += len(specs)
        outcomes: list[dict[str, Any]] = self.gate.run_launches(specs) if specs else []
        for outcome in outcomes:
            self.gate.save(f"{outcome['name']}.log", f"{outcome['stdout']}\n{outcome['stderr']}")
        return outcomes

    def _pair_specs(self, tool: str, pairs: list[tuple[str, str]], rail: str = "") -> list[dict[str, Any]]:
        specs = []
        for one, other in pairs:
            there = self._probe(one)
            gids = [(self.gate.nodes[n]["capability"]["network"].get("roce") or {}).get(rail) for n in (one, other)]
            more = [rail, *(str(indexes[0]) if indexes else "" for indexes in gids)] if rail else []
            words = ["sh", "-c", PAIR, "pair", there["name"], there["address"], tool, str(PORT), str(SECONDS), *more]
            specs.append(self._launch(f"wire-{tool}{rail and '-'}{rail}-{one}-{other}", [one, other], words, True))
        return specs

    def _add(self, check: str, nodes: list[str], outcome: dict[str, Any], seconds: float) -> None:
        words = last_words(outcome["stderr"] or outcome["stdout"])
        self.checks.append(stages.check(check, nodes, "skipped", f"no figure: {words}", (), seconds))

    def _tcp(self) -> None:
        """The wire of every pair; the slowest one is what NCCL over TCP is held against."""
        pairs = self._pairs("iperf3")
        found: dict[tuple[str, str], float] = {}
        for pair, outcome in zip(pairs, self._start(self._pair_specs("iperf3", pairs))):
            gbps = iperf3_gbps(outcome["stdout"])
            if gbps is None:
                self._add("iperf3, 8 streams", list(pair), outcome, outcome["seconds"])
                continue
            found[pair] = gbps
            figure = {"name": "arrived", "value": round(gbps, 4), "unit": "GB/s"}
            self.checks.append(stages.check("iperf3, 8 streams", list(pair), "pass", "", [figure], outcome["seconds"]))
        if found and len(found) == len(pairs):
            slowest = min(found, key=lambda pair: found[pair])
            wire = f"the {found[slowest]:.3g} GB/s that iperf3 measured between {' and '.join(slowest)}"
            why = f"TCP: {TCP_SHARE:.0%} of {wire}, the slowest of {len(found)} pairs"
            for node in self.gate.nodes.values():
                node["capability"]["network"].update(gbps=round(TCP_SHARE * found[slowest], 4), why=why)

    def _rails(self) -> None:
        """ib_write_bw of every pair over one rail after the other, against what card and slot allow."""
        pairs = self._pairs("ib_write_bw")
        names = [name for pair in pairs for name in pair]
        rates = [self.gate.nodes[name]["capability"]["network"].get("rails") or {} for name in names]
        for rail in [rail for rail in (rates[0] if rates else {}) if all(rail in other for other in rates)]:
            for pair, outcome in zip(pairs, self._start(self._pair_specs("ib_write_bw", pairs, rail))):
                expected = min(rates[names.index(name)][rail] for name in pair)
                self._judge_rail(rail, pair, outcome, expected)

    def _judge_rail(self, rail: str, pair: tuple[str, str], outcome: dict[str, Any], expected: float) -> None:
        gbps, check = perftest_gbps(outcome["stdout"]), f"ib_write_bw over {rail}"
        if gbps is None:
            self._add(check, list(pair), outcome, outcome["seconds"])
            return
        floor = round(expected * self.gate.settings["floor"], 3)
        good = gbps >= floor
        reason = f"{gbps:.4g} GB/s, {100 * gbps / expected:.3g} % of {expected:g} GB/s"
        figure = {"name": "average", "value": round(gbps, 3), "unit": "GB/s", "expected": expected, "floor": floor}
        status = "pass" if good else "fail"
        self.checks.append(stages.check(check, list(pair), status, reason, [figure], outcome["seconds"]))
        if not good:
            evidence = f"{check}: {reason}"
            self.gate.culprits.append(
                {"kind": "path", "host": " and ".join(pair), "device": rail, "evidence": evidence}
            )

    def _hosts(self) -> None:
        """nvbandwidth on every node, each GPU against the median of all GPUs."""
        names = self._with("nvbandwidth")
        words = ["nvbandwidth", "-t", "host_to_device_memcpy_ce"]
        outcomes = self._start([self._launch(f"wire-nvbandwidth-{name}", [name], words, False) for name in names])
        found = {name: nvbandwidth_gbps(outcome["stdout"]) for name, outcome in zip(names, outcomes)}
        every = [gbps for row in found.values() for gbps in row]
        median = statistics.median(every) if every else 0.0
        for name, outcome in zip(names, outcomes):
            if not found[name]:
                self._add("nvbandwidth, host to GPU", [name], outcome, outcome["seconds"])
                continue
            floor = round(PEERS * median, 2)
            slow = [gpu for gpu, gbps in enumerate(found[name]) if gbps < floor]
            figures = [
                {"name": f"GPU {gpu}", "value": gbps, "unit": "GB/s", "floor": floor}
                for gpu, gbps in enumerate(found[name])
            ]
            texts = [
                f"GPU {gpu}: {found[name][gpu]:g} GB/s from its host, the fleet's median is {median:g}" for gpu in slow
            ]
            status = "fail" if slow else "pass"
            self.checks.append(
                stages.check("nvbandwidth, host to GPU", [name], status, "; ".join(texts), figures, outcome["seconds"])
            )
            for gpu, text in zip(slow, texts):
                evidence = f"nvbandwidth: {text}"
                self.gate.culprits.append({"kind": "gpu", "host": name, "device": str(gpu), "evidence": evidence})
