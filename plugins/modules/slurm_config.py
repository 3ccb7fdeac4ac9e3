#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: Slurm's configuration on the controller, tried before it replaces the old one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: slurm.conf, gres.conf, cgroup.conf and mpi.conf on the controller, from options and node facts
description:
  - Writes the three files on the controller for the whole cluster. Nodes get them from there (configless).
  - Remembers every node in C(nodes.json) beside them, so that a run which contacts some hosts neither forgets nor
    misrenders the others.
  - Lets a scratch C(slurmctld) start with the new files before they replace the old ones. What it says is the failure's
    message.
  - Says what the running daemons need. Restarts nothing.
version_added: 0.1.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Predicts the change, the trial by the scratch daemon included.
    support: full
  diff_mode:
    description: Shows the files before and after.
    support: full
options:
  options:
    description: Options of slurm.conf. Empty values and options that the installed release does not know are left out.
    type: dict
    required: true
  cgroup:
    description: Options of cgroup.conf, likewise.
    type: dict
    default: {}
  mpi:
    description: >-
      Options of mpi.conf, which releases before 22.05 do not have. A mpi.conf that this module did not write stays as
      it is.
    type: dict
    default: {}
    version_added: 0.2.0
  partitions:
    description: Partitions, each with C(name), C(nodes) (inventory names; empty for all), C(default), C(options).
    type: list
    elements: dict
    required: true
  topology:
    description: >-
      C(kind), V(tree) or V(block), and C(parents) (the switch above by switch) or C(block_sizes). With it topology.conf
      is written from each node's C(switch).
    type: dict
    default: {}
  plugstack:
    description: Lines of plugstack.conf, one for each SPANK plugin.
    type: list
    elements: str
    default: []
  controllers:
    description: Inventory names of the controllers.
    type: list
    elements: str
    required: true
  databases:
    description: Inventory name of the host that runs slurmdbd; written as C(AccountingStorageHost).
    type: list
    elements: str
    default: []
  nodes:
    description: Inventory names of all nodes that belong to the cluster, contacted in this run or not.
    type: list
    elements: str
    required: true
  hosts:
    description: >-
      What this run saw, by inventory name, each with C(node) of M(gpuops.cluster.slurm_facts), C(address), C(options),
      C(switch) and the C(version) of slurmd.
    type: dict
    required: true
  removal_allowed:
    description: Drop nodes that are no longer in O(nodes).
    type: bool
    default: false
  directory:
    description: Where the files are.
    type: path
    default: /etc/slurm
"""

EXAMPLES = r"""
- name: Write the configuration
  gpuops.cluster.slurm_config:
    options: {ClusterName: lab, SlurmUser: slurm, SlurmctldParameters: enable_configless, GresTypes: gpu}
    partitions: [{name: main, default: true}]
    controllers: [ctl]
    nodes: [n1, n2]
    hosts:
      ctl: {node: "{{ hostvars.ctl.ansible_facts.slurm.node }}"}
      n1: {node: "{{ hostvars.n1.ansible_facts.slurm.node }}"}
"""

RETURN = r"""
action:
  description: What the running slurmctld needs, V(none), V(reconfigure) or V(restart). V(none) while it does not run.
  returned: always
  type: str
servers:
  description: Controllers in order, as other hosts reach them.
  returned: always
  type: list
  elements: str
nodes:
  description: >-
    Known nodes by inventory name, each with C(name), C(gpus) (count by type) and C(since), the time from which slurmd
    has to run.
  returned: always
  type: dict
missing:
  description: Inventory names of nodes that no run has contacted yet.
  returned: always
  type: list
  elements: str
notes:
  description: What was kept although this run saw something else, one sentence each.
  returned: always
  type: list
  elements: str
files:
  description: The files' text by name, for hosts that need a copy.
  returned: always
  type: dict
version:
  description: Release of slurmctld, empty where it is not installed yet (check mode).
  returned: always
  type: str
"""

import json
import os
import tempfile
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_conf as conf
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_config_test as config_test
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_daemon as daemon
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_state as states
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_topology as topology


def write(module: AnsibleModule, path: str, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(temporary, 0o644)
    module.atomic_move(temporary, path)


def apply(module: AnsibleModule, program: str, version: str) -> dict[str, Any]:
    """Everything that needs slurmctld to be installed."""
    directory = module.params["directory"]
    states.refuse_skew(version, module.params["hosts"])
    old_state = json.loads(daemon.read(f"{directory}/nodes.json") or json.dumps(states.empty()))
    state, notes = states.merge(
        old_state,
        module.params["hosts"],
        controllers=module.params["controllers"],
        databases=module.params["databases"],
        nodes=module.params["nodes"],
        removal_allowed=module.params["removal_allowed"],
    )
    leaving = states.leaving(old_state, state)
    states.refuse_leaving(leaving, daemon.jobs(module, leaving) if leaving else [])
    try:
        files = topology.files(module.params, state, version)
    except ValueError as error:
        raise states.Refused(str(error)) from error
    notes += topology.optional(files, {n: daemon.read(f"{directory}/{n}") for n in ("plugstack.conf", "mpi.conf")})
    old = {name: daemon.read(f"{directory}/{name}") for name in files}
    differing = [name for name in files if files[name] != old[name]]
    states.refuse_rename(conf.parse(files["slurm.conf"]), daemon.read)
    if differing and old["slurm.conf"]:
        keys = states.changed_keys(old["slurm.conf"], files["slurm.conf"])
        if keys & set(states.UNMOVABLE):
            states.refuse_moves(old["slurm.conf"], files["slurm.conf"], len(daemon.jobs(module, [])))
        cgroup_changed = "cgroup.conf" in differing
        states.mark(old_state, state, keys=keys, cgroup_changed=cgroup_changed, version=version, now=int(time.time()))
    if differing:
        words = config_test.complaint(program, files, "slurm")
        if words:
            raise states.Refused(f"slurmctld {version} refuses the new configuration, nothing was changed:\n{words}")
    files["nodes.json"] = json.dumps(state, indent=1) + "\n"
    old["nodes.json"] = daemon.read(f"{directory}/nodes.json")
    differing = [name for name in files if files[name] != old[name]]
    if not module.check_mode:
        for name in differing:
            write(module, f"{directory}/{name}", files[name])
    return {"state": state, "notes": notes, "files": files, "old": old, "differing": differing}


def report(module: AnsibleModule, version: str, done: dict[str, Any]) -> dict[str, Any]:
    state = done["state"]
    start, same = daemon.running(module)
    needs = "none"
    if start:
        needs = (
            "restart"
            if start < state["since"]["slurmctld"]
            else "none"
            if same and not done["differing"]
            else "reconfigure"
        )
    nodes = {
        name: {
            "name": record["node"]["name"],
            "gpus": conf.gres_counts(record["node"]["gres"]),
            "since": max(record["since"], state["since"]["slurmd"]),
        }
        for name, record in state["nodes"].items()
    }
    path = module.params["directory"]
    diff = [
        {
            "before_header": f"{path}/{name}",
            "after_header": f"{path}/{name}",
            "before": done["old"][name],
            "after": done["files"][name],
        }
        for name in done["differing"]
        if name != "nodes.json"
    ]
    return {
        "changed": bool(done["differing"]),
        "diff": diff,
        "action": needs,
        "version": version,
        "servers": [topology.address(record) for record in state["controllers"].values()],
        "nodes": nodes,
        "missing": [name for name in module.params["nodes"] if name not in state["nodes"]],
        "notes": done["notes"],
        "files": {name: text for name, text in done["files"].items() if name != "nodes.json"},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "options": {"type": "dict", "required": True},
            "cgroup": {"type": "dict", "default": {}},
            "mpi": {"type": "dict", "default": {}},
            "partitions": {"type": "list", "elements": "dict", "required": True},
            "topology": {"type": "dict", "default": {}},
            "plugstack": {"type": "list", "elements": "str", "default": []},
            "controllers": {"type": "list", "elements": "str", "required": True},
            "databases": {"type": "list", "elements": "str", "default": []},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "hosts": {"type": "dict", "required": True},
            "removal_allowed": {"type": "bool", "default": False},
            "directory": {"type": "path", "default": "/etc/slurm"},
        },
        supports_check_mode=True,
    )
    program, version = daemon.installed(module)
    if not version and module.check_mode:
        empty: dict[str, Any] = {"servers": [], "nodes": {}, "missing": [], "notes": [], "files": {}}
        module.exit_json(changed=True, action="none", version="", **empty)
    if not version:
        module.fail_json(msg="slurmctld is not installed here: run the play on the controller first")
    try:
        module.exit_json(**report(module, version, apply(module, program, version)))
    except states.Refused as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
