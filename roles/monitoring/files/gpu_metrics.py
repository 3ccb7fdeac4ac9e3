# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the metrics of this host's GPUs and fabric to a file, for node_exporter's textfile collector.

Installed as one file together with the parsers of gpu_facts; a timer of systemd starts it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time

from ansible_collections.gpuops.cluster.plugins.module_utils import _fabric_facts, _gpu_facts, _gpu_metrics

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
    return _gpu_metrics.render(gpu, _fabric_facts.gather(), usage, time.monotonic() - start)


def write(path: str, text: str) -> None:
    """In one step: node_exporter must never read half a file."""
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpuops")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1], page())
