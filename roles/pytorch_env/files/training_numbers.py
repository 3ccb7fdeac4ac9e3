# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way of training in parallel, checked for its numbers against the same training in one process.

All of it is in float64, so that a difference is an error and not rounding: what remains comes from the order of sums.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from training_model import HEAD_SIZE, Model, loss_of, tokens

TOLERANCE = 1e-9
BEYOND = 1e30
STEPS, RATE, SAMPLES, LENGTH, ACCUMULATED = 3, 0.1, 1, 8, 4
LONGEST_PIPELINE = 8  # more ranks make more pipelines side by side, each through all nodes
MODES = ("data_parallel", "sharded", "gradient_accumulation", "pipeline", "tensor_parallel")

Numbers = dict[str, Any]


def whole(value: Tensor) -> Tensor:
    """A tensor of which each rank may hold a part, as one."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def numbers_of(model: nn.Module, losses: list[float]) -> Numbers:
    """Losses of all steps, the last gradients, and the parameters that they led to."""
    found: Numbers = {
        f"loss of step {step}": torch.tensor(value, dtype=torch.float64) for step, value in enumerate(losses)
    }
    for name, parameter in model.named_parameters():
        plain = name.removeprefix("module.")
        found[f"gradient of {plain}"] = whole(parameter.grad).detach().clone()
        found[f"parameter {plain}"] = whole(parameter).detach().clone()
    return found


class Problem:
    """The training that every mode must repeat: the same batches on every rank, some samples for each of them."""

    def __init__(self, rank: int, ranks: int, local_ranks: int, device: torch.device) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        torch.manual_seed(1)
        # Every split comes out even: heads over the ranks of a node (of the cluster where a node has one), blocks over
        # stages.
        self.parts = local_ranks if local_ranks > 1 else ranks
        self.stages = next(size for size in range(min(ranks, LONGEST_PIPELINE), 0, -1) if ranks % size == 0)
        width = HEAD_SIZE * self.parts * max(1, 4 // self.parts)
        self.model = Model(width, max(2, self.stages)).to(device, torch.float64)
        self.batches = [tokens(ranks * SAMPLES * ACCUMULATED, LENGTH, seed, device) for seed in range(STEPS)]
        self.expected = self.train(copy.deepcopy(self.model), self.batches)

    def mine(self, batch: tuple[Tensor, Tensor], parts: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of a batch in `parts` portions; together the shares of all ranks are the batch."""
        for portion in zip(*(side.chunk(parts) for side in batch)):
            x, y = (side.chunk(self.ranks)[self.rank] for side in portion)
            yield x, y

    def train(self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], shared: bool = False) -> Numbers:
        """Plain training steps; with `shared` each rank has its part of the batch, the loss is their mean."""
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(self.mean(loss) if shared else loss.item())
        return numbers_of(model, losses)

    def mean(self, loss: Tensor) -> float:
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total.item() / self.ranks

    def ddp(self) -> DistributedDataParallel:
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(copy.deepcopy(self.model), device_ids=ids)

    def data_parallel(self) -> Numbers:
        return self.train(self.ddp(), (next(self.mine(batch)) for batch in self.batches), shared=True)

    def sharded(self) -> Numbers:
        model = copy.deepcopy(self.model)
        mesh = init_device_mesh(self.device.type, (self.ranks,))
        for block in model.blocks.values():
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return self.train(model, (next(self.mine(batch)) for batch in self.batches), shared=True)

    def gradient_accumulation(self) -> Numbers:
        """ACCUMULATED small batches before each step, of which the last one alone communicates."""
        model = self.ddp()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        losses = []
        for batch in self.batches:
            optimizer.zero_grad()
            total = torch.zeros((), dtype=torch.float64, device=self.device)
            for number, (x, y) in enumerate(self.mine(batch, ACCUMULATED)):
                model.require_backward_grad_sync = number == ACCUMULATED - 1
                loss = loss_of(model(x), y) / ACCUMULATED
                loss.backward()
                total += loss.detach()
            optimizer.step()
            losses.append(self.mean(total))
        return numbers_of(model, losses)

    def pipeline(self) -> Numbers:
        """Each rank holds its blocks; small batches pass from rank to rank, gradients back."""
        model = copy.deepcopy(self.model)
        shape = (self.stages, self.ranks // self.stages)
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("stage", "copy"))
        mine, blocks = mesh.get_local_rank("stage"), len(model.blocks)
        model.keep(mine * blocks // self.stages, (mine + 1) * blocks // self.stages)
        stage = PipelineStage(model, mine, self.stages, self.device, group=mesh.get_group("stage"))
        schedule = Schedule1F1B(stage, n_microbatches=2 * self.stages, loss_fn=loss_of)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        losses = []
        for x, y in self.batches:
            optimizer.zero_grad()
            parts: list[Tensor] = []
            first, last = mine == 0, mine == self.stages - 1
            schedule.step(*([x] if first else []), **({"target": y, "losses": parts} if last else {}))
            optimizer.step()
            # The loss is known on the last stage alone.
            loss = torch.stack(parts).mean().detach() if last else torch.zeros((), dtype=torch.float64)
            losses.append(self.mean(loss.to(self.device)) * self.stages)
        return numbers_of(model, losses)

    def tensor_parallel(self) -> Numbers:
        """Projections split over the ranks of a node; every node does the same."""
        shape = (self.ranks // self.parts, self.parts)
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("copy", "tensor"))
        model = copy.deepcopy(self.model)
        plan = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
        plan |= {name: RowwiseParallel() for name in ("out", "down")}
        for block in model.blocks.values():
            parallelize_module(block, mesh["tensor"], plan)
        return self.train(model, self.batches)


def compare(found: Numbers, expected: Numbers) -> tuple[float, str]:
    """The largest difference relative to the largest value of the same tensor, and of what it is."""
    worst = (0.0, "")
    for what, value in found.items():
        want = expected[what].to(value.device)
        error = ((value - want).abs().max() / want.abs().max()).item()
        if not error <= BEYOND:  # not a number, or infinite
            error = BEYOND
        if error > worst[0]:
            worst = (error, what)
    return worst


def check(problem: Problem, mode: str) -> dict[str, Any]:
    """One mode on this rank: {mode, error, of, right}; `of` names what differs most."""
    if (problem.stages if mode == "pipeline" else problem.parts if mode == "tensor_parallel" else 2) == 1:
        return {"mode": mode, "skipped": "one process has nothing to split"}
    error, what = compare(getattr(problem, mode)(), problem.expected)
    return {"mode": mode, "error": error, "of": what, "right": error <= TOLERANCE}
