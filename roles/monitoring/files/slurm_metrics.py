# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes metrics of Slurm to a file, for node_exporter's textfile collector.

Installed as one file together with the readers of Slurm's answers; a timer of systemd starts it.
"""

from __future__ import annotations

import sys
import time

from ansible_collections.gpuops.cluster.plugins.module_utils import (
    _slurm_answers,
    _slurm_drain,
    _slurm_metrics,
    _textfile,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._command import run

TIMEOUT_S = 30.0


def ask(*command: str) -> str:
    answer = run(command, TIMEOUT_S)
    if answer.rc != 0:
        raise RuntimeError(answer.failure or f"{' '.join(command)}: {answer.text().strip()}")
    return answer.stdout.decode("utf-8", "replace")


def page() -> str:
    try:
        if not any(_slurm_answers.parse_ping(ask("scontrol", "ping")).values()):
            return _slurm_metrics.render(up=False)
        nodes = _slurm_drain.parse_nodes(ask("scontrol", "--oneliner", "show", "node"))
        queue = ask("squeue", "--noheader", "--array", f"--format={_slurm_metrics.QUEUE}")
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return _slurm_metrics.render(up=False)
    return _slurm_metrics.render(True, nodes.values(), queue, time.strftime("%Y-%m-%dT%H:%M:%S"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    _textfile.write(sys.argv[1], page())
