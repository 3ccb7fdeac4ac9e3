# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tensor parallel training: every matrix is split over the GPUs of a node, and nodes train data parallel.

    sbatch --nodes=2 train.sbatch train_tensor.py

For layers that are too large for one GPU. It communicates within every layer, so keep it inside a node (NVLink).
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser(description="Tensor parallel inside a node, data parallel between nodes.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="samples of one node")
    parser.add_argument("--width", type=int, default=64)
    wanted = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"])

    # Two dimensions: the same row is the same node.
    mesh = init_device_mesh(device.type, (ranks // local, local), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(1)
    blocks = [Block(wanted.width) for _unused in range(2)]
    model = nn.Sequential(nn.Linear(16, wanted.width), *blocks, nn.Linear(wanted.width, 1)).to(device)
    for block in blocks:
        # The first matrix is split by columns, the second by rows: one sum over the GPUs for both.
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    # All GPUs of a node work on the same samples, other nodes on others.
    generator = torch.Generator(device).manual_seed(100 + rank // local)
    for step in range(wanted.steps):
        inputs = torch.randn(wanted.batch, 16, device=device, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs.sin().sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == wanted.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}: loss {mean.item() / ranks:.4f}, split over {local} of {ranks}", flush=True)
    dist.destroy_process_group()
    if not on_gpu:
        # Threads of Gloo outlive its group while a model still knows it, and now and then abort Python as it ends.
        os._exit(0)


if __name__ == "__main__":
    main()
