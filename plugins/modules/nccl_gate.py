#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_gate
short_description: Measure a GPU cluster with nccl-tests and say pass, fail, blocked or unstable
description:
  - Runs nccl-tests on every node alone, then on all nodes together, and after a failure on pairs that name the guilty
    node, path, GPU or link. Judges bus bandwidth against what the hardware should reach.
  - Writes C(acceptance.json), C(acceptance.junit.xml), C(acceptance.prom) and C(acceptance.html) on the control node,
    and shows a line of progress for every round of launches.
  - The task fails unless the verdict is C(pass). A pass that is still valid is not measured again.
  - Runs on the host from which jobs are started; use C(run_once) and C(delegate_to).
options:
  nodes:
    description:
      - The nodes by host name, each with C(capability) (from P(gpuops.cluster.gate_capability#filter)), C(slurm_name),
        C(mpi_host), C(aliases) (names by which the node may call itself), C(leaf) (its leaf switch, may be empty),
        C(software) (whatever identifies what is installed) and C(identity) (whatever identifies this very machine).
    type: dict
    required: true
  absent:
    description: Hosts that should be measured but failed earlier; each blocks the gate.
    type: list
    elements: str
    default: []
  binaries:
    description: Folder of nccl-tests' programs, the same on all nodes.
    type: path
    required: true
  report_dir:
    description: Folder on the control node for reports, logs and baselines.
    type: path
    required: true
  launcher:
    description: What starts jobs; V(auto) takes Slurm where its controller answers.
    type: str
    choices: [auto, slurm, mpirun]
    default: auto
  begin:
    description: Smallest message size.
    type: str
    default: 64M
  end:
    description: Largest message size, the one that is judged.
    type: str
    default: 1G
  iterations:
    description: Timed operations for each size.
    type: int
    default: 20
  warmup:
    description: Operations before the timed ones.
    type: int
    default: 5
  launches:
    description: Launches of which the median counts.
    type: int
    default: 3
  timeout:
    description: Seconds after which a launch counts as hung.
    type: int
    default: 600
  wait:
    description: Seconds to wait until Slurm has freed all nodes.
    type: int
    default: 60
  parallel:
    description: Launches that run side by side.
    type: int
    default: 128
  stages:
    description:
      - V(nodes) measures every node alone, V(cluster) all nodes together. The preflight always comes first.
      - With V(nodes) alone a pass says nothing of the network between nodes.
    type: list
    elements: str
    choices: [nodes, cluster]
    default: [nodes, cluster]
  collectives:
    description: Collectives to run over all nodes; alone, a node runs all_reduce.
    type: list
    elements: str
    choices: [all_reduce, all_gather, reduce_scatter, alltoall, sendrecv]
    default: [all_reduce, alltoall]
  expected:
    description:
      - Expected bus bandwidth in GB/s instead of the modelled one, by C(node), C(cluster), C(pair) for all_reduce and
        C(cluster_COLLECTIVE) for others.
    type: dict
    default: {}
  floor:
    description: Share of the expected figure that must be reached.
    type: float
    default: 0.9
  over:
    description: Share of a modelled figure above which a result is flagged.
    type: float
    default: 1.1
  max_cv:
    description: Coefficient of variation above which a measurement is repeated, then called unstable.
    type: float
    default: 0.05
  margin:
    description: Loss against the baseline of earlier passing runs that is a failure.
    type: float
    default: 0.05
  environment:
    description: Variables for the launches, such as NCCL_SOCKET_IFNAME.
    type: dict
    default: {}
  slurm_mpi:
    description: Value of srun's C(--mpi).
    type: str
    default: pmix
  slurm_options:
    description: Options for the allocation, such as C(--partition).
    type: list
    elements: str
    default: []
  mpirun_options:
    description: Options for mpirun.
    type: list
    elements: str
    default: []
  job_name:
    description: Name of the allocation in Slurm.
    type: str
    default: nccl-gate
  min_shm_mib:
    description: Least size of /dev/shm inside a job.
    type: int
    default: 1024
  accepted:
    description: Findings of the preflight that do not block but are warnings.
    type: list
    elements: str
    choices: [acs, busy, gid, gpudirect, memlock, shm]
    default: []
  wire:
    description:
      - Whether to measure what lies below NCCL where the tools are, C(iperf3) between pairs without RDMA,
        C(ib_write_bw) rail by rail with it, C(nvbandwidth) from host to GPUs.
      - What iperf3 measures is what a cluster without RDMA is held against, unless O(expected) says otherwise.
    type: bool
    default: true
  isolate:
    description: Whether to search for the guilty part after a failure.
    type: bool
    default: true
  drain:
    description: Whether to drain guilty nodes in Slurm with the reason; nodes that are drained keep theirs.
    type: bool
    default: false
  valid_days:
    description: How long a pass of the same nodes, software and settings stays valid.
    type: float
    default: 7
  always:
    description: Measure even if a valid pass is there.
    type: bool
    default: false
  compare_to:
    description: An C(acceptance.json) of another run, or the folder that holds it; the report shows what changed since.
    type: path
    default: ""
  note:
    description: A remark that every report shows.
    type: str
    default: ""
attributes:
  check_mode:
    description: Shows the plan; starts nothing.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  action:
    description: Drives the stages from the control node; every round of launches is one module call.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Measure and judge the nodes of this play
  gpuops.cluster.nccl_gate:
    nodes: "{{ gate_nodes }}"
    binaries: /opt/nccl-tests/bin
    report_dir: reports
  delegate_to: "{{ ansible_play_hosts | first }}"
  run_once: true
"""

RETURN = r"""
verdict:
  description: V(pass), V(fail), V(blocked) or V(unstable).
  returned: when measured, or when a valid pass is there
  type: str
report:
  description: Path of the HTML report on the control node.
  returned: always
  type: str
drained:
  description: Nodes that were drained.
  returned: when measured
  type: list
  elements: str
plan:
  description: What would be run, in words.
  returned: in check mode
  type: list
  elements: str
"""
