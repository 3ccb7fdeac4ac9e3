# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run by torchrun on every node: an all_reduce whose result is known, on GPUs where torch sees them, else on CPUs.

Rank 0 prints one JSON line: ranks, hosts, backend, whether the sum was right on every rank, seconds of the all_reduce,
and what the ranks run with: every version of torch and CUDA among them, every NCCL library that is mapped.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ELEMENTS = 1 << 20


def main() -> int:
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if on_gpu else "cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    values = torch.full((ELEMENTS,), float(rank + 1), device=device)
    started = time.monotonic()
    dist.all_reduce(values)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.monotonic() - started

    mine = {
        "host": socket.gethostname(),
        # The sum of 1 … ranks is exact in float32 for any cluster size.
        "right": bool(torch.all(values == ranks * (ranks + 1) / 2).item()),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": sorted({word for word in Path("/proc/self/maps").read_text().split() if "libnccl.so" in word}),
    }
    everyone: list[dict[str, Any]] = [{}] * ranks
    dist.all_gather_object(everyone, mine)
    if rank == 0:
        print(
            json.dumps(
                {
                    "ranks": ranks,
                    "hosts": sorted({one["host"] for one in everyone}),
                    "backend": dist.get_backend(),
                    "sum_is_right": all(one["right"] for one in everyone),
                    "seconds": round(seconds, 4),
                    "torch": sorted({one["torch"] for one in everyone}),
                    "cuda": sorted({str(one["cuda"]) for one in everyone}),
                    "nccl": sorted({path for one in everyone for path in one["nccl"]}),
                }
            )
        )
    dist.destroy_process_group()
    return 0 if mine["right"] else 1


if __name__ == "__main__":
    sys.exit(main())
