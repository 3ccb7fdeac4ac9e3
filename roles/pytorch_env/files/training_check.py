# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run by torchrun on every node: is training in parallel right, and how fast is it from one process to all?

Rank 0 prints one JSON line: who took part, each mode's numbers against training in one process (training_numbers.py),
and speed with where the time goes (training_speed.py). A rank that fails prints what it was doing on a line of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import socket
import sys
import traceback
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import training_numbers
import training_speed


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Checks of training in parallel; started by torchrun.")
    parser.add_argument("--data-path", default="", help="folder with training data, read only")
    parser.add_argument("--sample-bytes", type=int, default=150_000, help="what is read for one sample")
    parser.add_argument("--workers", type=int, default=0, help="data loaders of a rank; 0: from its cores")
    parser.add_argument("--seconds", type=float, default=5, help="how long reading and loading are measured")
    parser.add_argument("--timeout", type=int, default=300, help="seconds that a rank waits for another")
    return parser.parse_args()


def everyone(mine: Any, control: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine, group=control)
    return found


class ToldAlready(Exception):
    """A rank cannot go on, and has said why."""


def tell(what: dict[str, Any]) -> None:
    """Say it in one write. Ranks of a node share its output, and under torchrun, which wants no buffers, print() writes
    the end of a line by itself."""
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def tell_failure(error: Exception, doing: str) -> None:
    told = {"host": socket.gethostname(), "rank": int(os.environ.get("RANK", "0")), "doing": doing}
    tell({"training_failed": {**told, "error": f"{type(error).__name__}: {error}"[:500]}})


def leave_together(trouble: Exception | None, doing: str, control: Any) -> None:
    """End all ranks if one has trouble. It is told before any of them leaves: who loses a peer complains as well."""
    if not any(everyone(trouble is not None, control)):
        return
    if trouble:
        tell_failure(trouble, doing)
    dist.barrier(control)
    raise ToldAlready


def run(wanted: argparse.Namespace, doing: dict[str, str]) -> dict[str, Any]:
    on_gpu = torch.cuda.is_available()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    doing["now"] = "meeting the other ranks"
    patience = datetime.timedelta(seconds=wanted.timeout)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=patience, device_id=device if on_gpu else None)
    control = dist.new_group(backend="gloo", timeout=patience)
    who = {
        "host": socket.gethostname(),
        "device": local,
        "name": torch.cuda.get_device_name() if on_gpu else "CPU",
        "torch": torch.__version__,
    }
    doing["now"] = "looking for the data"
    there = not wanted.data_path or os.path.isdir(wanted.data_path)
    missing = None if there else FileNotFoundError(f"the data path {wanted.data_path} is no directory here")
    leave_together(missing, doing["now"], control)
    problem = training_numbers.Problem(
        dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"]), device
    )
    modes = []
    for mode in training_numbers.MODES:
        doing["now"] = mode
        modes.append(everyone(training_numbers.check(problem, mode), control))
    del problem
    doing["now"] = "measuring the speed"
    scaling, data = training_speed.measure(training_speed.Speed(device, control, wanted))
    found = {
        "ranks": everyone(who, control),
        "backend": dist.get_backend(),
        "tolerance": training_numbers.TOLERANCE,
        "sample_bytes": wanted.sample_bytes,
        "modes": modes,
        "scaling": scaling,
        "data": everyone(data, control),
    }
    dist.barrier(control)
    return found


def main() -> int:
    doing = {"now": "starting"}
    try:
        found = run(options(), doing)
    except ToldAlready:
        return 1
    except Exception as error:  # whatever it is, it is told by the rank that met it
        tell_failure(error, doing["now"])
        traceback.print_exc()
        return 1
    if dist.get_rank() == 0:
        tell({"training": found})
    dist.destroy_process_group()
    return 0


def end(code: int) -> NoReturn:
    """End this process without Python's own clean-up.

    Threads of Gloo outlive its groups while a model still knows them, and one that lets go of a tensor during that
    clean-up aborts the process (pytorch/pytorch#179291), after all was well.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
