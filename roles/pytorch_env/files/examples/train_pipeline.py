# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pipeline parallel training: each process holds some layers, and small parts of a batch pass from one to the next.

    sbatch --nodes=2 train.sbatch train_pipeline.py

For models that are too large for a node whose network is slow: only what passes between two layers crosses it.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    parser = argparse.ArgumentParser(description="Pipeline parallel training.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    # A stage is idle while the pipeline fills and drains: (stages - 1) / (parts + stages - 1) of the time.
    parser.add_argument("--parts", type=int, default=0, help="parts of a batch; 0: four times the stages")
    wanted = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    is_first, is_last = rank == 0, rank == ranks - 1

    # This process's layers only: the whole model is never in one place.
    torch.manual_seed(rank)
    layers: list[nn.Module] = [nn.Linear(16, wanted.width)] if is_first else []
    layers += [nn.LayerNorm(wanted.width), nn.Linear(wanted.width, wanted.width), nn.GELU()]
    layers += [nn.Linear(wanted.width, 1)] if is_last else []
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    stage = PipelineStage(model, rank, ranks, device)
    parts = wanted.parts or 4 * ranks
    batch = -(-wanted.batch // parts) * parts  # parts of equal size
    # One forward, one backward: a stage never holds more parts than there are stages behind it.
    schedule = Schedule1F1B(stage, n_microbatches=parts, loss_fn=nn.functional.mse_loss)

    generator = torch.Generator().manual_seed(0)  # the first and the last stage make the same samples
    for step in range(wanted.steps):
        inputs = torch.randn(batch, 16, generator=generator).to(device)
        target, losses = inputs.sin().sum(1, keepdim=True), list[Tensor]()
        if is_first and is_last:
            schedule.step(inputs, target=target, losses=losses)
        elif is_first:
            schedule.step(inputs)  # inputs go in at the first stage
        elif is_last:
            schedule.step(target=target, losses=losses)  # the loss comes out of the last
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        if is_last and (step % 20 == 0 or step == wanted.steps - 1):
            print(f"step {step}: loss {torch.stack(losses).mean().item():.4f}, {ranks} stages", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
