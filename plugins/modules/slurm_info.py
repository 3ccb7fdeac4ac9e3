#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: what Slurm says of itself."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_info
short_description: Controllers, nodes, partitions, jobs and accounting of a Slurm cluster
description:
  - Asks the running daemons with Slurm's own clients, one call for each kind of thing, and returns the answers as data.
version_added: 0.2.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Only reads.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  gather:
    description: What is asked for.
    type: list
    elements: str
    choices: [nodes, partitions, jobs, accounting]
    default: [nodes, partitions, jobs]
notes:
  - Works on every host of the cluster that has Slurm's clients and the munge key.
"""

EXAMPLES = r"""
- name: Look at the nodes
  gpuops.cluster.slurm_info:
    gather: [nodes]
  register: slurm

- name: Name those that are out
  ansible.builtin.debug:
    msg: "{{ slurm.nodes | dict2items | selectattr('value.reason') | map(attribute='key') }}"
"""

RETURN = r"""
cluster:
  description: C(ClusterName).
  returned: success
  type: str
version:
  description: Release of slurmctld.
  returned: success
  type: str
controllers:
  description: Whether each controller answers, by host name.
  returned: success
  type: dict
  sample: {ctl: true}
nodes:
  description: Nodes by name.
  returned: when asked for
  type: dict
  sample:
    n1:
      {states: [mixed], reason: "", reason_by: "", partitions: [main], cpus: 112, cpus_used: 8, memory_mib: 2045952,
       gpus: 8, gpus_used: 4}
partitions:
  description: Partitions by name.
  returned: when asked for
  type: dict
  sample: {main: {state: up, nodes: 2, max_time: infinite}}
jobs:
  description: Jobs that wait or run, the oldest first.
  returned: when asked for
  type: list
  elements: dict
  sample: [{id: "7", user: alice, account: vision, partition: main, state: running, reason: "", nodes: [n1], gpus: 4}]
accounts:
  description: Accounts of this cluster by name, each with C(parent), its share and limits, and C(users) likewise.
  returned: when accounting is asked for
  type: dict
users:
  description: Users by name, each with C(default_account) and C(admin_level).
  returned: when accounting is asked for
  type: dict
qos:
  description: Qualities of service by name.
  returned: when accounting is asked for
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _sacctmgr
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_answers as answers
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_drain as drain

KINDS = ("nodes", "partitions", "jobs", "accounting")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gather": {"type": "list", "elements": "str", "choices": list(KINDS), "default": list(KINDS[:3])},
        },
        supports_check_mode=True,
    )

    def ask(*command: str) -> str:
        code, out, err = module.run_command(list(command))
        if code:
            module.fail_json(msg=f"{' '.join(command)}: {' '.join((err or out).split())}")
        return str(out)

    config = answers.parse_config(ask("scontrol", "show", "config"))
    found: dict[str, Any] = {
        "cluster": config.get("ClusterName", ""),
        "version": config.get("SLURM_VERSION", ""),
        "controllers": answers.parse_ping(module.run_command(["scontrol", "ping"])[1]),
    }
    wanted = module.params["gather"]
    if "nodes" in wanted:
        nodes = drain.parse_nodes(ask("scontrol", "--oneliner", "show", "node"))
        found["nodes"] = {name: drain.facts(node) for name, node in nodes.items()}
    if "partitions" in wanted:
        found["partitions"] = answers.parse_partitions(ask("sinfo", "--noheader", f"--format={answers.PARTITIONS}"))
    if "jobs" in wanted:
        question = ["squeue", "--noheader", "--array", "--sort=i"]
        jobs = answers.parse_jobs(
            ask(*question, f"--format={answers.JOBS}"), ask(*question, f"--Format={answers.JOB_TRES}")
        )
        names = {
            each: ask("scontrol", "show", "hostnames", each).split() for each in {job["nodes"] for job in jobs} - {""}
        }
        found["jobs"] = [{**job, "nodes": names.get(job["nodes"], [])} for job in jobs]
    if "accounting" in wanted:
        slurm = _sacctmgr.Sacctmgr(module.run_command)
        try:
            found["accounts"] = slurm.accounts(slurm.cluster(found["cluster"]))
            found.update(users=slurm.users(), qos=slurm.qos())
        except _sacctmgr.Failed as error:
            module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
