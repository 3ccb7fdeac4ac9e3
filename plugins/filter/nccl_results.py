# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: what nccl-tests printed, as data."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_results
short_description: What nccl-tests printed, as data
description:
  - Reads the output of nccl-tests of the releases 2.0 to 2.19 and later, and of its AMD variant.
  - Understands logs tagged by C(mpirun --tag-output) or C(srun --label), with NCCL's own log in between,
    cut at any place, with several runs, or of several copies mixed into each other.
  - A line that does not have exactly the columns of its table is never taken for a result.
positional: _input
options:
  _input:
    description: The log.
    type: str
    required: true
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Run the test
  ansible.builtin.command: mpirun -np 16 all_reduce_perf -b 1G -e 16G -f 2
  register: outcome
  changed_when: false

- name: Show the best bus bandwidth
  ansible.builtin.debug:
    msg: "{{ (outcome.stdout | gpuops.cluster.nccl_results).0.peak.out_of_place }} GB/s"
"""

RETURN = r"""
_value:
  description:
    - The runs in the order of the log. None for an empty log; one without rows where nccl-tests did not start.
    - C(collective) is null where the log does not name it, which is usual before release 2.17; C(version) is that of
      nccl-tests, C(nccl_version) that of the library; C(ranks) is null where the log does not list its devices.
    - C(wrong) counts the wrong elements of all rows; it is null and C(checked) false when the data was not checked.
      Releases before 2.11 print the largest C(error) in place of a count; C(wrong) is then what their summary counts.
    - C(avg_busbw) is the average that is printed. C(complete) tells whether the summary is there and no row is damaged.
    - C(problems) are V(wrong_data), V(incomplete), V(no_rows), V(crashed), V(nccl_error), V(cuda_error), V(usage),
      V(interleaved_copies), V(single_rank), V(not_checked).
  type: list
  elements: dict
  sample:
    - collective: all_reduce
      version: 2.18.2
      nccl_version: 2.30.7
      ranks: 2
      devices:
        - {rank: 0, host: n1, pid: 15784, device: 0, bus: "0009:01:00", name: NVIDIA GH200 120GB}
        - {rank: 1, host: n2, pid: 24926, device: 0, bus: "0009:01:00", name: NVIDIA GH200 120GB}
      rows:
        - size: 134217728
          count: 33554432
          type: float
          redop: sum
          root: -1
          out_of_place: {time_us: 5871.07, algbw: 22.86, busbw: 22.86, wrong: 0}
          in_place: {time_us: 5867.43, algbw: 22.88, busbw: 22.88, wrong: 0}
      avg_busbw: 14.9966
      out_of_bounds: 0
      peak: {out_of_place: 22.86, in_place: 22.88}
      wrong: 0
      checked: true
      complete: true
      problems: []
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError


def nccl_results(text: Any) -> list[dict[str, Any]]:
    from ansible_collections.gpuops.cluster.plugins.module_utils._nccl_log import parse_log

    if not isinstance(text, str):
        raise AnsibleFilterError(f"nccl_results takes the text of a log, not {type(text).__name__}")
    return parse_log(text)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"nccl_results": nccl_results}
