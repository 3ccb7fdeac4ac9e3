# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the metrics of this host's GPUs and fabric to a file, for node_exporter's textfile collector.

Installed as one file together with the parsers of gpu_facts; a timer of systemd starts it.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _fabric_facts, _gpu_facts, _gpu_metrics, _textfile

TIMEOUT_S = 60.0


def page() -> str:
    start = time.monotonic()
    nvidia_smi = shutil.which("nvidia-smi")
    ask = _gpu_facts.caller(nvidia_smi, TIMEOUT_S) if nvidia_smi else None
    gpu = _gpu_facts.gather(ask)
    usage = {}
    if ask and gpu["count"]:
        query = ",".join(["uuid", *_gpu_metrics.USAGE])
        answer = ask(f"--query-gpu={query}", "--format=csv,noheader,nounits")
        usage = _gpu_metrics.parse_usage(answer.stdout.decode("utf-8", "replace"))
    return _gpu_metrics.render(gpu, _fabric_facts.gather(), usage, time.monotonic() - start, health())


def health() -> dict[str, Any]:
    """What node_health, where it is installed, found last."""
    try:
        with open("/run/gpuops/node_health.json", encoding="utf-8") as file:
            result = json.load(file)
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    _textfile.write(sys.argv[1], page())
