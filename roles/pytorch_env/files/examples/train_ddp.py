# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data parallel training (DDP): every process holds the whole model and trains on its part of each batch.

    sbatch --nodes=2 train.sbatch train_ddp.py                 all GPUs of two nodes
    torchrun --standalone --nproc-per-node=gpu train_ddp.py    all GPUs of this machine

Begin here. It is enough as long as the model, its gradients and the optimizer fit into one GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Data parallel training.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="samples of one process in one pass")
    parser.add_argument("--accumulate", type=int, default=1, help="passes before each step of the optimizer")
    parser.add_argument(
        "--lr", type=float, default=0.01, help="rate that is right for one process without accumulation"
    )
    # N processes make every batch N times larger. There is no law of what the rate should then be: `linear` is usual
    # for SGD (with a warmup, below), `sqrt` for Adam and the like; `none` keeps it. Compare the losses, then choose.
    parser.add_argument("--scale-lr", choices=["none", "sqrt", "linear"], default="sqrt")
    parser.add_argument("--warmup", type=int, default=20, help="steps in which the rate rises to its full value")
    parser.add_argument("--workers", type=int, default=2, help="processes that load data, for each training process")
    parser.add_argument("--checkpoint", default="", help="file to go on from, written after each epoch")
    parser.add_argument("--profile", default="", help="folder for a trace of a few steps, see README.md")
    return parser.parse_args()


def samples() -> TensorDataset:
    """Put your data set here. These are points of ten classes, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(10, 64, generator=generator)
    labels = torch.randint(10, (8192,), generator=generator)
    return TensorDataset(centers[labels] + 3 * torch.randn(8192, 64, generator=generator), labels)


def profiler(folder: str) -> contextlib.AbstractContextManager[torch.profiler.profile | None]:
    """Five steps are recorded after ten that warm up; without a folder nothing is."""
    if not folder:
        return contextlib.nullcontext()
    when = torch.profiler.schedule(wait=5, warmup=5, active=5, repeat=1)
    write = torch.profiler.tensorboard_trace_handler(folder, worker_name=f"rank{dist.get_rank()}")
    return torch.profiler.profile(schedule=when, on_trace_ready=write)


def main() -> None:
    wanted = arguments()
    # torchrun says who this process is: one process for each GPU, numbered on its node by LOCAL_RANK.
    on_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)  # forgotten, all processes share the first GPU
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).to(device)
    larger = ranks * wanted.accumulate  # so many times the batch that --lr was meant for
    rate = wanted.lr * {"none": 1.0, "sqrt": math.sqrt(larger), "linear": float(larger)}[wanted.scale_lr]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / max(1, wanted.warmup), total_iters=wanted.warmup)
    first_epoch = 0
    if wanted.checkpoint and os.path.exists(wanted.checkpoint):
        saved = torch.load(wanted.checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        warmup.load_state_dict(saved["warmup"])
        first_epoch = saved["epoch"] + 1
    model = DistributedDataParallel(model)

    data = samples()
    sampler: DistributedSampler = DistributedSampler(data)  # gives each process its own part
    loader = DataLoader(data, wanted.batch, sampler=sampler, num_workers=wanted.workers, pin_memory=on_gpu)
    with profiler(wanted.profile) as profile:
        for epoch in range(first_epoch, wanted.epochs):
            sampler.set_epoch(epoch)  # another order in each epoch
            total = torch.zeros(2, device=device)
            for number, batch in enumerate(loader, 1):
                inputs, labels = (part.to(device, non_blocking=True) for part in batch)
                steps = number % wanted.accumulate == 0 or number == len(loader)
                # Passes that only accumulate need not communicate.
                with contextlib.nullcontext() if steps else model.no_sync():
                    loss = nn.functional.cross_entropy(model(inputs), labels)
                    (loss / wanted.accumulate).backward()
                if steps:
                    optimizer.step()
                    optimizer.zero_grad()
                    warmup.step()
                total += torch.stack([loss.detach(), torch.ones_like(loss)])
                if profile:
                    profile.step()
            dist.all_reduce(total)
            if rank == 0:
                print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}, {ranks} processes, rate {rate:.3g}", flush=True)
                if wanted.checkpoint:  # written aside and renamed, so that it is whole at any time
                    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save({**state, "warmup": warmup.state_dict(), "epoch": epoch}, wanted.checkpoint + ".new")
                    os.replace(wanted.checkpoint + ".new", wanted.checkpoint)
    dist.destroy_process_group()
    if not on_gpu:
        # Threads of Gloo outlive its group while a model still knows it, and now and then abort Python as it ends.
        os._exit(0)


if __name__ == "__main__":
    main()
