# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sharded data parallel training (FSDP2): as data parallel, but each process keeps only its part of the parameters.

    sbatch --nodes=2 train.sbatch train_fsdp.py

For models that do not fit into one GPU. A block's parameters are gathered just before use and dropped after it.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser(description="Sharded data parallel training.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="samples of one process")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=4)
    wanted = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)  # the same parameters everywhere, before they are shared out
    blocks = [Block(wanted.width) for _unused in range(wanted.blocks)]
    model = nn.Sequential(nn.Linear(16, wanted.width), *blocks, nn.Linear(wanted.width, 1)).to(device)
    mesh = init_device_mesh(device.type, (ranks,))
    # Computing in bfloat16, sums of gradients in float32.
    precision = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if on_gpu else MixedPrecisionPolicy()
    for block in blocks:  # each block is gathered by itself: one block at a time is whole
        fully_shard(block, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  # after sharding: its state is sharded, too

    own = sum(parameter.to_local().numel() for parameter in model.parameters())
    print(f"rank {rank}: {own} of {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    generator = torch.Generator(device).manual_seed(100 + rank)  # other samples in each process
    for step in range(wanted.steps):
        inputs = torch.randn(wanted.batch, 16, device=device, generator=generator)
        loss = nn.functional.mse_loss(model(inputs).float(), inputs.sin().sum(1, keepdim=True))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # the norm over all parts
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == wanted.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}: loss {mean.item() / ranks:.4f}", flush=True)
    dist.destroy_process_group()
    if not on_gpu:
        # Threads of Gloo outlive its group while a model still knows it, and now and then abort Python as it ends.
        os._exit(0)


if __name__ == "__main__":
    main()
