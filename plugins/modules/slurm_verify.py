#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: proof that the scheduler works."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_verify
short_description: Proof that Slurm works, by a job that takes every GPU once
description:
  - Waits for the controller and for the nodes to register. Then runs one short job over all idle nodes for each kind
    of node, with all their GPUs, and looks for its record in the accounting.
  - Disturbs nobody. Busy, drained and reserved nodes are reported, not waited for, and the job gives up when it does
    not start at once.
  - Run it on a controller.
version_added: 0.1.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Asks for states only. No job is run.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  nodes:
    description: Nodes to ask, by NodeName, each with the count of GPUs by type.
    type: dict
    required: true
  timeout:
    description: Seconds to wait for registration and, separately, for the accounting record.
    type: int
    default: 60
  memory:
    description: Whether a job that takes more memory than it asked for has to die, tried on one idle node.
    type: bool
    default: false
  accounting:
    description: Whether the job has to be in the accounting.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Prove two nodes
  gpuops.cluster.slurm_verify:
    nodes:
      n1: {h100: 8}
      n2: {h100: 8}
"""

RETURN = r"""
jobs:
  description: Jobs that ran, each with C(id), C(nodes), C(gpus), C(seconds).
  returned: always
  type: list
  elements: dict
not_asked:
  description: Nodes that were not asked, and why, one sentence each.
  returned: always
  type: list
  elements: str
problems:
  description: What is wrong, one sentence each. The module fails when there is any.
  returned: always
  type: list
  elements: str
nodes:
  description: State, partitions and reason of the nodes.
  returned: always
  type: dict
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_trial_job as trial

# tail keeps the last line, which never ends.
HOG = "head -c 256M /dev/zero | tail -n 1 >/dev/null && echo survived"
TASK = 'echo "verify|$SLURM_JOB_ID|$SLURMD_NODENAME|${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}|$CUDA_VISIBLE_DEVICES"'


def ping(module: AnsibleModule, deadline: float) -> str:
    """Empty when a controller answers."""
    while True:
        out = module.run_command(["scontrol", "ping"])[1]
        if " is UP" in out:
            return ""
        if time.monotonic() > deadline:
            return f"no controller answers: {' '.join(out.split())}"
        time.sleep(0.5)


def registered(module: AnsibleModule, names: list[str], deadline: float) -> dict[str, dict[str, Any]]:
    """States once no node is on its way any more, or at the deadline."""
    while True:
        # Of all nodes: asked about a single one, slurmctld answers from before the last job ended.
        _code, out, _err = module.run_command(["sinfo", "-h", "-N", "-o", "%N|%T|%P|%u|%E"])
        nodes = {name: node for name, node in trial.parse_nodes(out).items() if name in names}
        if all(trial.standing(nodes.get(name)) != "waiting" for name in names) or time.monotonic() > deadline:
            return nodes
        time.sleep(0.5)


def leaving(nodes: dict[str, dict[str, Any]]) -> bool:
    return any(node["state"].startswith("comp") for node in nodes.values())


def settled(module: AnsibleModule, names: list[str], deadline: float) -> dict[str, dict[str, Any]]:
    """States once the last job has left the nodes, or at the deadline."""
    while True:
        nodes = registered(module, names, deadline)
        if not leaving(nodes) or time.monotonic() > deadline:
            return nodes
        time.sleep(0.5)


def run_job(module: AnsibleModule, group: dict[str, Any]) -> tuple[dict[str, Any], list[str], list[str]]:
    """(job, reasons why it was not asked, problems)"""
    names = group["nodes"]
    command = ["srun", "--quiet", "--immediate=15", "--time=1", "--mpi=none", "--job-name=gpuops-verify", "--mem=16"]
    command += [f"--partition={group['partition']}", f"--nodelist={','.join(names)}", f"--nodes={len(names)}"]
    command += ["--ntasks-per-node=1", "--chdir=/", "--export=NONE", "--input=none"]
    if group["gpus"]:
        command.append("--gres=" + ",".join(f"gpu:{kind}:{count}" for kind, count in group["gpus"].items()))
    start = time.monotonic()
    code, out, err = module.run_command([*command, "/bin/sh", "-c", TASK])
    job, problems = trial.judge(group, out)
    record = {"id": job, "nodes": names, "gpus": group["gpus"], "seconds": round(time.monotonic() - start, 1)}
    if code == 0:
        return record, [], problems
    said = " ".join(err.split()) or f"exit status {code}"
    if not job and ("busy" in said or "Immediate" in said or "immediate" in said):
        return record, [f"{','.join(names)}: taken by other jobs meanwhile ({said})"], []
    return record, [], [f"{','.join(names)}: srun failed: {said}"]


def limited(module: AnsibleModule, name: str, partition: str) -> str:
    """Complaint when a job lives that takes more memory than it asked for."""
    command = ["srun", "--quiet", "--immediate=15", "--time=1", "--mpi=none", "--job-name=gpuops-memory", "--mem=32"]
    command += [f"--partition={partition}", f"--nodelist={name}", "--ntasks=1", "--chdir=/"]
    command += ["--export=NONE", "--input=none"]
    out = module.run_command([*command, "/bin/sh", "-c", HOG])[1]
    return f"{name}: a job that asked for 32 MiB of memory could take 256" if "survived" in out else ""


def accounted(module: AnsibleModule, job: dict[str, Any], group: dict[str, Any], deadline: float) -> str:
    """slurmctld tells slurmdbd within seconds."""
    while True:
        out = module.run_command(["sacct", "-nPX", "-j", job["id"], "-o", "State,AllocTRES,NNodes"])[1]
        complaint = trial.judge_accounting(group, out)
        if not complaint or time.monotonic() > deadline:
            return complaint and f"job {job['id']}: {complaint}"
        time.sleep(0.5)


def sort_out(names: list[str], nodes: dict[str, dict[str, Any]]) -> tuple[list[str], list[str], list[str]]:
    """(idle, not asked, problems)"""
    idle, not_asked, problems = [], [], []
    for name in names:
        node = nodes.get(name)
        kind = trial.standing(node)
        said = f"{name} is {node['state']} ({node['reason']})" if node else f"{name} is not known to the controller"
        if kind == "idle":
            idle.append(name)
        elif kind in ("busy", "held"):
            not_asked.append(said)
        elif node and trial.unfit(node) and "drain" in node["state"]:
            problems.append(f"{said}: once the cause is gone, scontrol update nodename={name} state=resume")
        else:
            problems.append(said)
    return idle, not_asked, problems


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "dict", "required": True},
            "timeout": {"type": "int", "default": 60},
            "accounting": {"type": "bool", "default": True},
            "memory": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    gpus: dict[str, dict[str, int]] = module.params["nodes"]
    names = list(gpus)
    deadline = time.monotonic() + module.params["timeout"]
    result: dict[str, Any] = {"jobs": [], "not_asked": [], "problems": [], "nodes": {}}
    silent = ping(module, time.monotonic() if module.check_mode else deadline)
    if silent:
        result["not_asked" if module.check_mode else "problems"].append(silent)
    elif names:
        nodes = registered(module, names, time.monotonic() if module.check_mode else deadline)
        idle, result["not_asked"], result["problems"] = sort_out(names, nodes)
        result["nodes"] = nodes
        groups = [] if module.check_mode else trial.groups(idle, nodes, gpus)
        while groups:
            group = groups.pop(0)
            job, not_asked, problems = run_job(module, group)
            if problems:
                # A prolog that finds a node sick drains it: that is the node's state, and the others are asked again.
                # A node that the job does not leave, as when its slurmd is gone, is none of these.
                now = settled(module, group["nodes"], time.monotonic() + module.params["timeout"])
                rest, held, bad = sort_out(group["nodes"], now)
                if held and not bad and not leaving(now):
                    not_asked, problems = held, []
                    groups += trial.groups(rest, now, gpus)
            result["not_asked"] += not_asked
            if not not_asked and not problems and module.params["accounting"]:
                missing = accounted(module, job, group, time.monotonic() + module.params["timeout"])
                problems = [missing] if missing else []
            if module.params["memory"] and not not_asked and not problems:
                complaint = limited(module, group["nodes"][0], group["partition"])
                problems = [complaint] if complaint else []
            result["problems"] += problems
            result["jobs"] += [job] if job["id"] else []
    if result["problems"] and not module.check_mode:
        module.fail_json(msg="Slurm does not work as it should:\n" + "\n".join(result["problems"]), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
