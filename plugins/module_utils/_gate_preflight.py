# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage 0: nodes are taken from Slurm, and asked for all that makes figures worthless. Costs no GPU time."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_judge as judging
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_ports as ports
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_probe as probing

LOOK = 120.0  # seconds for a task that only looks; a node that hangs there must not cost a launch's time limit


def plain(name: str, command: list[str], timeout: float) -> dict[str, Any]:
    """A launch that is no job: on the launch host itself."""
    return {"name": name, "command": command, "environment": {}, "timeout": float(timeout), "cleanup": []}


def passed(gate: Any) -> bool:
    """True when figures would mean something; what speaks against it is in the Gate's `blocked`."""
    names = list(gate.nodes)
    gate.blocked = gate.blocked_now()
    if not gate.blocked:
        gate.blocked = _allocate(gate, names)
    probed = int(not gate.blocked)
    if not gate.blocked:
        _probe(gate, names)
    reasons: dict[str, list[str]] = {}
    for entry in gate.blocked:
        reasons.setdefault(entry["host"], []).append(entry["reason"])
    results = [
        {
            "nodes": [name],
            "status": "blocked" if name in reasons or "" in reasons else "pass",
            "reason": "; ".join(reasons.get(name, reasons.get("", []))),
        }
        for name in names
    ]
    gate.add_stage("preflight", names, probed, probed, results)
    rdma = any(_meets_rdma(gate, name) for name in names)
    gate.stages[-1]["checks"] = probing.asked(gate.blocked, gate.launcher.name, rdma, len(names) > 1)
    gate.say(f"preflight: {'blocked, ' + gate.blocked[0]['reason'] if gate.blocked else 'nothing stands in the way'}")
    return not gate.blocked


def _meets_rdma(gate: Any, name: str) -> bool:
    """Whether this node reaches others by RDMA, and there are others."""
    return len(gate.nodes) > 1 and gate.nodes[name]["capability"]["network"]["kind"] == "rdma"


def _allocate(gate: Any, names: list[str]) -> probing.Blocked:
    """All nodes from Slurm, for as long as everything may take, or as the partition allows."""
    reason = ""
    for seconds in (gate.longest(), None):
        opening = gate.launcher.open(seconds)
        if not opening:
            return []
        wait = gate.settings["wait"]
        gate.say(f"preflight: waits up to {wait} s for {len(names)} free nodes")
        reason = gate.launcher.opened(gate.run_launches([plain("allocate", opening, wait + 30)])[0])
        if not reason:
            gate.launcher.lease = gate.run_launches([plain("guard", gate.launcher.guard(), 60)])[0]["stdout"].strip()
            return []
        if "time limit" not in reason.lower():
            break
    return [{"host": "", "check": "allocation", "reason": f"Slurm did not give all nodes to the gate: {reason}"}]


def _probe(gate: Any, names: list[str]) -> None:
    """One task a node that says what only the job can know."""
    command = ["sh", "-c", probing.PROBE, "probe", gate.settings["binaries"]]
    outcome = gate.run_launches([gate.spec({"names": names}, command, 1, "preflight-probe", timeout=LOOK)])[0]
    gate.save("preflight-probe.log", f"{outcome['stdout']}\n{outcome['stderr']}")
    gate.probes = probing.read_probe(outcome["stdout"])
    views = {
        name: {
            "aliases": node["aliases"],
            "rdma": _meets_rdma(gate, name),
            "product": node["capability"]["product"],
            "network": node["capability"]["network"],
        }
        for name, node in gate.nodes.items()
    }
    words = judging.last_words(outcome["stderr"] or outcome["stdout"])
    gate.blocked, gate.accepted = probing.blocked_by_probe(views, gate.probes, gate.settings, gate.launcher.name, words)
    if not gate.blocked and len(names) > 1:
        gate.accepted += ports.look(gate)
    if gate.blocked and not gate.probes:
        gate.blocked = [{"host": "", "check": "job", "reason": f"no job starts ({gate.launcher.name}): {words}"}]
