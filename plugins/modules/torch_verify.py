#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: torch_verify
short_description: Run a sum over all ranks in a PyTorch environment, and judge it
version_added: 0.3.0
description:
  - Starts the check program of the role P(gpuops.cluster.pytorch_env#role) by the command that it is given, and fails
    where the sum is wrong, where another torch answers than the locked one, or an NCCL from outside the environments.
  - A run for which Slurm has no free nodes is no failure, but told in RV(busy).
options:
  command:
    description: The command, C(torchrun) with the check program, or C(srun) with them.
    type: list
    elements: str
    required: true
  environment:
    description: Name of the environment.
    type: str
    required: true
  torch:
    description: Version of torch in its lock; a build such as C(+cu126) is compared only where it has one.
    type: str
    required: true
  root:
    description: Directory of the environments, from where NCCL has to come.
    type: path
    required: true
  host:
    description: Whom a failure names.
    type: str
    required: true
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: A sum over two processes
  gpuops.cluster.torch_verify:
    command:
      - /opt/gpuops/envs/torch/bin/torchrun
      - --standalone
      - --nproc-per-node=2
      - /opt/gpuops/checks/allreduce_check.py
    environment: torch
    torch: 2.9.1+cpu
    root: /opt/gpuops/envs
    host: "{{ inventory_hostname }}"
"""

RETURN = r"""
busy:
  description: Slurm's last words where it had no free nodes; else empty.
  returned: success
  type: str
said:
  description: What the check program said.
  returned: success
  type: dict
  sample: {ranks: 4, sum_is_right: true, torch: [2.9.1+cpu], nccl: []}
"""

import json
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

NO_NODES = re.compile("Unable to allocate resources|Requested nodes are busy|Job has been cancelled")
NOTHING: dict[str, Any] = {"sum_is_right": False, "torch": [], "nccl": []}


def answer(out: str) -> dict[str, Any]:
    """The line of the check program among whatever else was printed."""
    for line in out.splitlines():
        if line.startswith('{"ranks"'):
            try:
                return {**NOTHING, **json.loads(line)}
            except ValueError:
                continue  # cut off
    return NOTHING


def holds(said: dict[str, Any], torch: str, root: str) -> bool:
    releases = {version.partition("+")[0] for version in said["torch"]}
    return (
        bool(said["sum_is_right"])
        and releases == {torch.partition("+")[0]}
        and (said["torch"] == [torch] or "+" not in torch)
        and all(path.startswith(f"{root}/") for path in said["nccl"])
    )


def last(text: str, pattern: str = "") -> str:
    lines = [line for line in text.splitlines() if re.search(pattern, line)]
    return lines[-1] if lines else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "command": {"type": "list", "elements": "str", "required": True},
            "environment": {"type": "str", "required": True},
            "torch": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "host": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        code, out, err = module.run_command(given["command"], handle_exceptions=False)
    except OSError as error:
        code, out, err = 127, "", f"Error: {error}"
    said = answer(out)
    busy = last(err) if code != 0 and NO_NODES.search(err) else ""
    if not busy and (code != 0 or not holds(said, given["torch"], given["root"])):
        module.fail_json(
            msg=f"{given['host']}: the distributed run of environment {given['environment']} (torch {given['torch']}) "
            f"did not hold: exit code {code}, said {said}, {last(err, '[Ee]rror')}",
            rc=code,
            stdout=out,
            stderr=err,
        )
    module.exit_json(changed=False, busy=busy, said=said)


if __name__ == "__main__":
    main()
