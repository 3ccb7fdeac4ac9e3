#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: drains and resumes nodes of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain and resume nodes of Slurm, and wait for it
description:
  - Drains nodes with a reason, and resumes those that this reason took out.
  - A node that somebody else drained keeps their reason, and is not resumed. That is told in RV(kept).
  - Jobs that run on a node which is drained are let finish.
version_added: 0.2.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Says what would change; does not wait.
    support: full
  diff_mode:
    description: Shows states and reasons.
    support: full
options:
  nodes:
    description: Nodes by NodeName; host lists of Slurm such as V(gpu[01-16]) are understood.
    type: list
    elements: str
    required: true
  state:
    description: What they should be.
    type: str
    choices: [drained, resumed]
    required: true
  reason:
    description:
      - Why they are drained.
      - When they are resumed, only nodes that are out for exactly this reason are.
    type: str
    required: true
  force:
    description: Whether other people's reasons are overruled.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait, with O(state=drained) until no job is on the nodes any more, with O(state=resumed) until they
        take jobs.
      - Nodes that stay out for other people's reasons are not waited for when they should resume.
    type: bool
    default: false
  timeout:
    description: Seconds to wait. Then the module fails and names nodes and jobs.
    type: int
    default: 3600
notes:
  - Run it where C(scontrol) is allowed to change nodes, as root on a controller.
seealso:
  - module: gpuops.cluster.slurm_info
"""

EXAMPLES = r"""
- name: Take two nodes out, and wait until their jobs have ended
  gpuops.cluster.slurm_node:
    nodes: [gpu01, gpu02]
    state: drained
    reason: driver upgrade
    wait: true

- name: Give back those that the upgrade took out
  gpuops.cluster.slurm_node:
    nodes: [gpu01, gpu02]
    state: resumed
    reason: driver upgrade
    wait: true
    timeout: 300
"""

RETURN = r"""
nodes:
  description: The nodes by name, as M(gpuops.cluster.slurm_info) tells them. In check mode, as they are now.
  returned: success
  type: dict
  sample:
    gpu01: {states: [idle, drain], reason: driver upgrade, reason_by: root}
told:
  description: Names of the nodes that were, or would be, drained or resumed.
  returned: success
  type: list
  elements: str
kept:
  description: Nodes that somebody else took out and that stay as they are, one sentence each.
  returned: success
  type: list
  elements: str
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_drain as drain


def scontrol(module: AnsibleModule, *words: str) -> str:
    code, out, err = module.run_command(["scontrol", *words])
    if code:
        module.fail_json(msg=f"scontrol {' '.join(words)}: {' '.join((err or out).split())}")
    return str(out)


def expand(module: AnsibleModule) -> list[str]:
    wanted = ",".join(module.params["nodes"])
    return list(dict.fromkeys(scontrol(module, "show", "hostnames", wanted).split())) if wanted else []


def look(module: AnsibleModule, names: list[str]) -> dict[str, drain.Node]:
    # Of all nodes: asked about a single one, slurmctld answers from before the last job ended.
    nodes = drain.parse_nodes(scontrol(module, "--oneliner", "show", "node"))
    problem = drain.unknown(names, nodes)
    if problem:
        module.fail_json(msg=problem)
    return {name: nodes[name] for name in names}


def wait(module: AnsibleModule, names: list[str]) -> dict[str, drain.Node]:
    """The nodes once they are as they should be; fails at the deadline."""
    draining = module.params["state"] == "drained"
    deadline = time.monotonic() + module.params["timeout"]
    while True:
        nodes = look(module, names)
        late = [node for node in nodes.values() if (node.working if draining else not node.ready)]
        if not late:
            return nodes
        if time.monotonic() >= deadline:
            break
        time.sleep(min(1.0, max(deadline - time.monotonic(), 0.05)))
    where = ", ".join(f"{node.name} is {'+'.join(node.states).lower()}" for node in late)
    jobs = module.run_command(["squeue", "-h", "-w", ",".join(node.name for node in late), "-o", "%i of %u on %N"])[1]
    said = f"; jobs: {', '.join(jobs.split(chr(10))[:8]).strip(', ')}" if jobs.strip() else ""
    module.fail_json(msg=f"not {module.params['state']} after {module.params['timeout']} s: {where}{said}")
    return {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "resumed"], "required": True},
            "reason": {"type": "str", "required": True},
            "force": {"type": "bool", "default": False},
            "wait": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    # As Slurm gives it back: in one line.
    reason, force = " ".join(module.params["reason"].split()), module.params["force"]
    if not reason:
        module.fail_json(msg="reason is empty; say why, for those who find the node drained")
    names = expand(module)
    before = look(module, names) if names else {}
    kept = [] if force else drain.kept(before.values(), reason)
    if module.params["state"] == "drained":
        told = drain.to_drain(before.values(), reason, force=force)
        words = ["state=drain", f"reason={reason}"]
    else:
        told = drain.to_resume(before.values(), reason, force=force)
        words = ["state=resume"]
    after = before
    if told and not module.check_mode:
        scontrol(module, "update", f"nodename={','.join(told)}", *words)
        after = look(module, names)
    if module.params["wait"] and names and not module.check_mode:
        waited = names
        if module.params["state"] == "resumed" and not force:
            waited = [name for name in names if not drain.theirs(before[name], reason)]
        after = {**after, **(wait(module, waited) if waited else {})}

    was = [f"{name}: {'out' if before[name].out else 'in'} {before[name].reason}".rstrip() for name in told]
    goal = f"out {reason}" if module.params["state"] == "drained" else "in"
    module.exit_json(
        changed=bool(told),
        told=told,
        kept=kept,
        nodes={name: drain.facts(node) for name, node in after.items()},
        diff={"before": "".join(f"{line}\n" for line in was), "after": "".join(f"{name}: {goal}\n" for name in told)},
    )


if __name__ == "__main__":
    main()
