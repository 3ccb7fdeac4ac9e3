# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast training is from one process to all of them, and where the time of a step goes.

The same data-parallel training on 1, 2, … processes, with the same batch for each of them. Ranks that do not take part
wait without using their GPU. A step is split on every rank into waiting for data, computing (measured without
communication, all ranks at the same time), and the rest: communication that is not hidden behind computing, and waiting
for slower ranks.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import mmap
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from training_model import VOCABULARY, Model, loss_of

MOST_FILES = 1000


@dataclass
class Work:
    """What is trained: size of the model, samples and tokens of a process's batch."""

    width: int
    blocks: int
    head_size: int
    samples: int
    length: int
    steps: int


# About 100 million parameters on a GPU; on CPUs so little that a step takes milliseconds.
ON_GPU = Work(width=1024, blocks=8, head_size=64, samples=32, length=512, steps=30)
ON_CPU = Work(width=64, blocks=2, head_size=8, samples=4, length=16, steps=15)


def files_below(folder: str) -> list[str]:
    """Some of the files that are to be trained on."""
    found = (os.path.join(path, name) for path, _folders, names in os.walk(folder) for name in names)
    return [path for path in itertools.islice(found, MOST_FILES) if os.path.isfile(path) and os.path.getsize(path)]


class Samples(Dataset):  # type: ignore[type-arg]
    """Endless samples of `size` bytes, read from files where there are any; the bytes are taken for tokens."""

    def __init__(self, files: list[str], size: int, length: int, seed: int) -> None:
        self.files, self.size, self.length, self.seed = files, max(size, length + 1), length, seed

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Tensor:
        number = (self.seed + index) * 2654435761 % (1 << 32)  # spreads over files and places
        if not self.files:
            generator = torch.Generator().manual_seed(number)
            data = torch.randint(256, (self.size,), dtype=torch.uint8, generator=generator)
        else:
            path = self.files[number % len(self.files)]
            with open(path, "rb", buffering=0) as stream:
                room = os.fstat(stream.fileno()).st_size - self.size
                stream.seek(number % room if room > 0 else 0)
                read = stream.read(self.size)
            data = torch.frombuffer(bytearray(read.ljust(self.size, b"\0")), dtype=torch.uint8)
        return data[: self.length + 1].long() % VOCABULARY


class Speed:
    """Measures this rank's part; all ranks call the same methods in the same order."""

    def __init__(self, device: torch.device, control: Any, options: Any) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.local_rank, self.local_ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        self.device, self.control, self.options = device, control, options
        self.work = ON_GPU if device.type == "cuda" else ON_CPU
        self.files = files_below(options.data_path) if options.data_path else []
        self.cores = len(os.sched_getaffinity(0)) // self.local_ranks
        self.workers = options.workers or max(1, min(16, self.cores - 1))
        torch.manual_seed(1)
        self.model = Model(self.work.width, self.work.blocks, self.work.head_size).to(device)
        self.batches = self.loader()

    def loader(self) -> Iterator[Tensor]:
        samples = Samples(self.files, self.options.sample_bytes, self.work.length, self.rank << 24)
        return iter(
            DataLoader(
                samples,
                batch_size=self.work.samples,
                num_workers=self.workers,
                pin_memory=self.device.type == "cuda",
                prefetch_factor=4,
            )
        )

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def step(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, batch: Tensor) -> None:
        text = batch.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = loss_of(model(text[:, :-1]), text[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def steps(self, model: DistributedDataParallel, together: bool) -> list[tuple[float, float]]:
        """(waiting for data, whole step) in seconds for each step; not `together`: without communication."""
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        found = []
        with contextlib.nullcontext() if together else model.no_sync():
            for number in range(self.work.steps + 3):
                begin = self.now()
                batch = next(self.batches)
                waited = time.perf_counter() - begin
                self.step(model, optimizer, batch)
                if number >= 3:  # the first steps warm up
                    found.append((waited, self.now() - begin))
        return found

    def training(self, count: int, group: Any) -> dict[str, Any]:
        """Train on the first `count` ranks; every rank returns the figures of all of these."""
        mine: dict[str, Any] = {}
        if self.rank < count:
            ids = [self.device.index] if self.device.type == "cuda" else None
            model = DistributedDataParallel(copy.deepcopy(self.model), device_ids=ids, process_group=group)
            alone = self.steps(model, together=False)
            dist.barrier(group)
            together = self.steps(model, together=True)
            mine = {
                "compute_s": statistics.median(whole - waited for waited, whole in alone),
                "data_s": statistics.fmean(waited for waited, _whole in together),
                "step_s": statistics.fmean(whole for _waited, whole in together),
            }
        everyone: list[dict[str, Any]] = [{}] * self.ranks
        dist.all_gather_object(everyone, mine, group=self.control)
        return {"ranks": count, "samples": self.work.samples, "each": everyone[:count]}

    def counts(self) -> list[int]:
        """One process, one node, and twice as many nodes each time until all."""
        nodes = self.ranks // self.local_ranks
        found = {1, self.ranks} | {self.local_ranks << power for power in range(nodes.bit_length())}
        return sorted(count for count in found if count <= self.ranks)

    def scaling(self) -> list[dict[str, Any]]:
        found = []
        for count in self.counts():
            group = dist.new_group(list(range(count)))
            found.append(self.training(count, group))
        return found

    def loading(self) -> dict[str, Any]:
        """What the data loaders of this rank give when nothing waits for them, in samples a second."""
        self.batches = iter(())  # its workers are done
        dist.barrier(self.control)
        batches = self.loader()
        for _unused in range(4 * self.workers + 1):  # what was fetched ahead is not what it gives for long
            next(batches)
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < self.options.seconds or count == 0:
            next(batches)
            count += 1
        rate = count * self.work.samples / (time.perf_counter() - begin)
        return {"workers": self.workers, "cores": self.cores, "files": len(self.files), "samples_per_second": rate}

    def reading(self) -> dict[str, Any]:
        """Bytes a second that this node reads from the data path, all nodes at the same time."""
        dist.barrier(self.control)
        if self.local_rank != 0 or not self.files:
            dist.barrier(self.control)
            return {}
        size = max(4096, self.options.sample_bytes)
        fio = shutil.which("fio")
        found = with_fio(fio, self.files, size, self.options.seconds, self.workers * self.local_ranks) if fio else None
        found = found or by_hand(self.files, size, self.options.seconds)
        dist.barrier(self.control)
        return found


def with_fio(fio: str, files: list[str], size: int, seconds: float, jobs: int) -> dict[str, Any] | None:
    """fio's own figure, None where it says none. It only reads: --readonly refuses everything else."""
    largest = sorted(files, key=os.path.getsize, reverse=True)[:16]
    command = [
        fio,
        "--readonly",
        "--name=data",
        "--rw=randread",
        f"--bs={size // 4096 * 4096}",
        "--direct=1",
        "--ioengine=psync",
    ]
    command += [f"--numjobs={jobs}", "--group_reporting", "--time_based", f"--runtime={max(1, round(seconds))}"]
    command += ["--output-format=json", "--filename=" + ":".join(path for path in largest if ":" not in path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    try:
        rate = json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]
    except (ValueError, LookupError):
        return None
    return {"bytes_per_second": float(rate), "by": "fio"} if rate else None


def by_hand(files: list[str], size: int, seconds: float) -> dict[str, Any]:
    """One reader past the page cache where the file system can, else after asking it to forget the file."""
    begin, total = time.perf_counter(), 0
    buffer = mmap.mmap(-1, -(-size // 4096) * 4096)
    for path in itertools.cycle(files):
        reader = open_direct(path)
        with contextlib.closing(reader) as stream:
            while time.perf_counter() - begin < seconds and (count := stream.readinto(buffer)):
                total += count
        if time.perf_counter() - begin >= seconds:
            break
    return {"bytes_per_second": total / (time.perf_counter() - begin), "by": "one reader"}


def open_direct(path: str) -> Any:
    try:
        return open(os.open(path, os.O_RDONLY | os.O_DIRECT), "rb", buffering=0)
    except OSError:
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return open(handle, "rb", buffering=0)


def measure(speed: Speed) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Scaling, and this rank's data loading."""
    scaling = speed.scaling()
    return scaling, {**speed.loading(), "read": speed.reading(), "path": str(speed.options.data_path)}
