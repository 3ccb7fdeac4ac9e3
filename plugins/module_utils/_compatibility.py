# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether driver, CUDA toolkit, PyTorch wheel, NCCL and GPUs go together, and what would.

Numbers are in _compatibility_data.py. What the data does not know (a newer CUDA, an unknown GPU) is not refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ._compatibility_data import BRANCHES, CUDA, CUDA_MAJOR, GPUS, NCCL, PCI, WHEELS, Gpu, Wheel


class Stack(NamedTuple):
    """Versions that are to work together; what is empty is not judged."""

    driver: str = ""  # branch, or whole version
    toolkit: str = ""  # CUDA M.m, or M.m.p
    wheel: str = ""  # CUDA M.m that PyTorch's wheel is built for
    torch: str = ""
    nccl: str = ""
    nccl_cuda: str = ""  # CUDA, major or M.m, that NCCL is built for


def numbers(text: object) -> tuple[int, ...]:
    """(535, 309, 1) of "535.309.01"."""
    return tuple(int(part) for part in re.findall(r"\d+", str(text or "").partition("+")[0]))


def _short(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])


def at_least(driver: str, wanted: str) -> bool:
    """Is the driver this new? A branch alone counts as the newest of its branch."""
    have, need = numbers(driver), numbers(wanted)
    return have[:1] >= need[:1] if len(have) == 1 else have >= need


def native_cuda(driver: str) -> str:
    """The newest CUDA whose programs this driver runs without restriction: 12.2 for 535."""
    fitting = [cuda for cuda, least in CUDA.items() if at_least(driver, least)]
    return max(fitting, key=numbers, default="")


def runs(driver: str, cuda: str) -> Optional[str]:
    """How programs run: "whole", "minor" (only code compiled for the very GPU), "" (not at all); null where unknown."""
    short, major = _short(cuda), numbers(cuda)[0]
    if short in CUDA and at_least(driver, CUDA[short]):
        return "whole"
    if major in CUDA_MAJOR:
        return "minor" if at_least(driver, CUDA_MAJOR[major]) else ""
    return "" if major > max(CUDA_MAJOR) and numbers(driver)[0] < BRANCHES[-1] else None


def kind(device: Mapping[str, Any]) -> Optional[Gpu]:
    """What is known of a GPU: a device of gpu_facts, or its number on the bus alone, {"pci_device": 0x2330}."""
    name = str(device.get("name") or "")
    architecture = str(device.get("architecture") or "").split(" ", maxsplit=1)[0]
    if not architecture and device.get("pci_device"):
        number = int(device["pci_device"])
        row = next(row for row in PCI if number >= row.first)
        architecture = row.architecture
        known = [gpu for gpu in GPUS if gpu.architecture == architecture and gpu.driver_from in (row.driver_from, 450)]
        return next(iter(known), None)
    return next((gpu for gpu in GPUS if gpu.architecture == architecture and re.search(gpu.product, name)), None)


def kinds(devices: list[dict[str, Any]]) -> dict[str, Gpu]:
    """{product or PCI number: what is known of it}, each product once; unknown ones are left out."""
    found: dict[str, Gpu] = {}
    for device in devices:
        gpu = kind(device)
        if gpu is not None:
            label = str(device.get("name") or "") or f"10de:{int(device.get('pci_device') or 0):04x}"
            found.setdefault(f"{label} ({gpu.architecture})", gpu)
    return dict(sorted(found.items()))


def drives(branch: int, gpu: Gpu) -> bool:
    return branch >= gpu.driver_from and not (gpu.driver_until and branch >= gpu.driver_until)


def compiles(cuda: str, gpu: Gpu) -> bool:
    number = numbers(_short(cuda))
    return number >= numbers(gpu.cuda_from) and not (gpu.cuda_until and number >= numbers(gpu.cuda_until))


def wheel_of(cuda: str, torch: str = "") -> Optional[Wheel]:
    rows = [row for row in WHEELS if row.cuda == _short(cuda)]
    version = numbers(torch)[:2]
    fitting = [
        row
        for row in rows
        if not version
        or (version >= numbers(row.torch_from) and not (row.torch_until and version >= numbers(row.torch_until)))
    ]
    return next(iter(fitting), rows[-1] if rows else None)


def carries(wheel: Wheel, gpu: Gpu) -> bool:
    """Does the wheel hold code for the GPU?"""
    capability = numbers(gpu.capability)
    return numbers(wheel.lowest) <= capability and capability[0] <= numbers(wheel.highest)[0]


def _together(branch: int, cuda: str, gpus: Mapping[str, Gpu], wheel: bool) -> str:
    """How programs of this CUDA run with this branch on all of these GPUs: as runs() says, or not at all."""
    if wheel and not any(all(carries(row, gpu) for gpu in gpus.values()) for row in WHEELS if row.cuda == cuda):
        return ""
    if not all(drives(branch, gpu) and compiles(cuda, gpu) for gpu in gpus.values()):
        return ""
    return runs(str(branch), cuda) or ""


def _span(branches: list[int]) -> str:
    if branches[-1] == BRANCHES[-1]:
        return f"driver {branches[0]} or newer"
    return f"driver {branches[0]}" + (f" to {branches[-1]}" if len(branches) > 1 else "")


def alternatives(driver: str, cuda: str, gpus: Mapping[str, Gpu], wheel: bool = False) -> str:
    """What works instead, keeping the driver or keeping CUDA where that is possible, as the end of a sentence.

    What works without restriction goes before what works with one.
    """
    releases = sorted({row.cuda for row in WHEELS} if wheel else CUDA, key=numbers)
    what = "wheels for CUDA" if wheel else "CUDA"
    branches = [numbers(driver)[0]] if driver else list(BRANCHES)
    ways: list[str] = []
    for how in ("whole", "minor"):
        fitting = [
            (release, [branch for branch in branches if _together(branch, release, gpus, wheel) == how])
            for release in releases
        ]
        kept = [f"driver {branches[0]} with {what} {release}" for release, found in fitting if found and driver]
        ways = ways or kept[-1:]
    for how in ("whole", "minor"):
        found = [branch for branch in BRANCHES if _together(branch, _short(cuda), gpus, wheel) == how] if cuda else []
        if found and not any(way.endswith(f" {_short(cuda)}") for way in ways):
            ways.append(f"{_span(found)} with {what} {_short(cuda)}")
    if not ways:
        for release in releases:
            found = [branch for branch in BRANCHES if _together(branch, release, gpus, wheel) == "whole"]
            ways = [f"{_span(found)} with {what} {release}"] if found else ways
    return f"what works: {', or '.join(ways)}" if ways else "nothing serves all of these GPUs; separate them"


def _driver_problems(stack: Stack, gpus: Mapping[str, Gpu]) -> list[str]:
    if not stack.driver:
        return []
    branch = numbers(stack.driver)[0]
    problems = []
    for label, gpu in gpus.items():
        if not drives(branch, gpu):
            until = f"older than {gpu.driver_until}" if branch >= gpu.driver_from else f"{gpu.driver_from} or newer"
            instead = alternatives("", stack.toolkit or stack.wheel, gpus)
            problems.append(f"{label} needs a driver {until}, not {stack.driver} (nvidia_driver_version); {instead}")
    return problems


def _toolkit_problems(stack: Stack, gpus: Mapping[str, Gpu], toolkit_runs: bool) -> list[str]:
    if not stack.toolkit:
        return []
    problems = []
    for label, gpu in gpus.items():
        if not compiles(stack.toolkit, gpu):
            gone = gpu.cuda_until and numbers(_short(stack.toolkit)) >= numbers(gpu.cuda_until)
            bound = f"older than {gpu.cuda_until}" if gone else f"{gpu.cuda_from} or newer"
            instead = alternatives(stack.driver, "", gpus)
            problems.append(f"{label} needs CUDA {bound}, not {stack.toolkit} (cuda_toolkit_version); {instead}")
    if toolkit_runs and stack.driver and not problems and runs(stack.driver, stack.toolkit) == "":
        least = CUDA_MAJOR.get(numbers(stack.toolkit)[0], "")
        needs = f", which needs {least} or newer" if least else ""
        problems.append(
            f"driver {stack.driver} does not run programs of CUDA {stack.toolkit}{needs} (nvidia_driver_version, "
            f"cuda_toolkit_version); {alternatives(stack.driver, stack.toolkit, gpus)}"
        )
    return problems


def _wheel_problems(stack: Stack, gpus: Mapping[str, Gpu]) -> list[str]:
    if not stack.wheel:
        return []
    problems = []
    what = f"PyTorch {stack.torch}".strip() + f" for CUDA {stack.wheel}"
    row = wheel_of(stack.wheel, stack.torch)
    for label, gpu in gpus.items():
        if row is not None and not carries(row, gpu):
            problems.append(
                f"{what} holds code for compute capabilities {row.lowest} to {row.highest}, {label} has "
                f"{gpu.capability} (pytorch_env_environments); {alternatives(stack.driver, '', gpus, wheel=True)}"
            )
    if stack.driver and not problems and runs(stack.driver, stack.wheel) == "":
        least = CUDA_MAJOR.get(numbers(stack.wheel)[0], "")
        needs = f", it needs {least} or newer" if least else ""
        problems.append(
            f"driver {stack.driver} does not run {what}{needs} (nvidia_driver_version, pytorch_env_environments); "
            f"{alternatives(stack.driver, stack.wheel, gpus, wheel=True)}"
        )
    return problems


def _nccl_problems(stack: Stack, gpus: Mapping[str, Gpu]) -> list[str]:
    problems = []
    built = numbers(stack.nccl_cuda)[:1]
    # The NCCL of a wheel meets PyTorch, not the toolkit.
    name, other = ("PyTorch's wheel", stack.wheel) if stack.wheel else ("the toolkit", stack.toolkit)
    if built and other and numbers(other)[:1] != built:
        problems.append(
            f"NCCL {stack.nccl} is built for CUDA {stack.nccl_cuda}, {name} for {other}; take one of the same major"
        )
    if stack.nccl and built and numbers(stack.nccl) < numbers(NCCL.get(built[0], "0")):
        problems.append(f"NCCL {stack.nccl} is older than CUDA {built[0]}; the first for it is {NCCL[built[0]]}")
    for label, gpu in gpus.items():
        if stack.nccl and numbers(stack.nccl) < numbers(gpu.nccl_from):
            problems.append(f"{label} needs NCCL {gpu.nccl_from} or newer, not {stack.nccl}")
    return problems


def problems(stack: Stack, devices: list[dict[str, Any]], toolkit_runs: bool = True) -> list[str]:
    """Why these versions cannot work together on these GPUs: sentences with values, variables, and what would work.

    Without toolkit_runs the toolkit only compiles here: it is compared with the GPUs, not with the driver.
    """
    gpus = kinds(devices)
    found = _driver_problems(stack, gpus) + _toolkit_problems(stack, gpus, toolkit_runs)
    return found + _wheel_problems(stack, gpus) + _nccl_problems(stack, gpus)


def notes(stack: Stack) -> list[str]:
    """What works with a restriction."""
    found = []
    for name, cuda in (("CUDA", stack.toolkit), ("PyTorch for CUDA", stack.wheel)):
        if stack.driver and cuda and runs(stack.driver, cuda) == "minor":
            found.append(
                f"{name} {cuda} is newer than driver {stack.driver} ({native_cuda(stack.driver)}): programs run if "
                "they hold code for the very GPU, what is compiled at run time from PTX does not"
            )
    return found


def wheel_stack(versions: Mapping[str, Optional[str]]) -> Stack:
    """What a lock of pip says (normalised project name: version): PyTorch, the CUDA it is built for, and NCCL.

    The CUDA is that of torch's local version (+cu128), else that of NVIDIA's runtime wheel. A CPU build has none.
    """
    torch = versions.get("torch") or ""
    nccl, nccl_cuda = "", ""
    for name, version in versions.items():
        match = re.fullmatch(r"nvidia-nccl-cu(\d+)", name)
        if match and version:
            nccl, nccl_cuda = version, match[1]
    local = re.search(r"\+cu(\d+)(\d)$", torch)
    wheel = f"{local[1]}.{local[2]}" if local else ""
    for name, version in versions.items():
        if "+" not in torch and version and re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            wheel = _short(version)
    return Stack(wheel=wheel, torch=torch.partition("+")[0] if wheel else "", nccl=nccl, nccl_cuda=nccl_cuda)
