#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_stage
short_description: Add the outcome of another proof to the acceptance report
description:
  - Adds a stage to the report that M(gpuops.cluster.nccl_gate) wrote, and writes all its forms anew,
    C(acceptance.json), C(acceptance.junit.xml), C(acceptance.prom) and C(acceptance.html).
  - A stage of the same name is replaced. The verdict becomes the worst of the gate's and all added stages'.
  - A gate that measures begins a new report, without the stages that were added to the one before.
  - Without a report there is one of this stage alone.
  - Runs on the control node; use C(run_once).
options:
  report_dir:
    description: Folder on the control node that holds the report.
    type: path
    required: true
  name:
    description: Name of the stage, such as V(training); small letters, digits and underscores.
    type: str
    required: true
  title:
    description: Heading on the page; empty means the name.
    type: str
    default: ""
  results:
    description: The checks, each one row on the page and one test case.
    type: list
    elements: dict
    required: true
    suboptions:
      check:
        description: What was checked.
        type: str
        required: true
      nodes:
        description: Where.
        type: list
        elements: str
        required: true
      status:
        description: V(skipped) says why in O(results[].reason) and changes no verdict.
        type: str
        choices: [pass, fail, blocked, unstable, skipped]
        required: true
      reason:
        description: One sentence with the figures that decided.
        type: str
        default: ""
      figures:
        description: Numbers, each with C(name), C(value), C(unit), and, where there are any, C(expected) and C(floor).
        type: list
        elements: dict
        default: []
      seconds:
        description: How long it took.
        type: float
  launches:
    description: How many jobs were run for it.
    type: int
    default: 0
  next_action:
    description: What a person should do now, if this stage decides; empty means the first bad check's reason.
    type: str
    default: ""
  culprits:
    description: Parts at fault, each with C(kind) (node, gpu, nic or path), C(host), C(device) and C(evidence).
    type: list
    elements: dict
    default: []
  warnings:
    description: What passed but should be looked at.
    type: list
    elements: str
    default: []
  plots:
    description:
      - What the page draws below the checks, each with C(kind), C(title) and, for C(lines), C(series) (name of a line
        to its points, C([x, y])), for C(bars), C(parts) (names of what a bar is stacked of) and C(bars)
        (C([name, value, value, …])).
    type: list
    elements: dict
    default: []
  must_pass:
    description: Whether the task fails unless the status of this stage is pass or skipped.
    type: bool
    default: true
attributes:
  check_mode:
    description: Writes nothing.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  action:
    description: Runs on the control node alone.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Add a training run to the acceptance report
  gpuops.cluster.acceptance_stage:
    report_dir: "{{ nccl_tests_report_dir }}"
    name: training
    title: A training job over all GPUs
    results:
      - check: FSDP, 50 steps
        nodes: [n1, n2]
        status: pass
        reason: 41 % of the peak FLOP/s, 35 % expected
        figures: [{name: MFU, value: 41.2, unit: "%", floor: 35}]
        seconds: 80
  run_once: true
"""

RETURN = r"""
verdict:
  description: Verdict of the whole report.
  returned: always
  type: str
status:
  description: Worst status of this stage's checks.
  returned: always
  type: str
report:
  description: Path of the HTML report on the control node.
  returned: always
  type: str
"""
