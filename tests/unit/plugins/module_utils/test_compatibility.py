"""Which driver, CUDA, NCCL, PyTorch wheel and GPU go together: known answers, and the shape of the data."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility import (
    Stack,
    at_least,
    kind,
    native_cuda,
    notes,
    numbers,
    problems,
    runs,
    wheel_stack,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility_data import (
    BRANCHES,
    CUDA,
    CUDA_MAJOR,
    GPUS,
    NCCL,
    PCI,
    WHEELS,
)

H100 = {"architecture": "Hopper", "name": "NVIDIA H100 80GB HBM3"}
V100 = {"architecture": "Volta", "name": "Tesla V100-SXM2-32GB"}
B200 = {"architecture": "Blackwell", "name": "NVIDIA B200"}
B300 = {"architecture": "Blackwell", "name": "NVIDIA B300 SXM6 AC"}
L40S = {"architecture": "Ada Lovelace", "name": "NVIDIA L40S"}


@pytest.mark.parametrize(
    ("driver", "cuda", "expected"),
    [
        ("535", "12.2", "whole"),
        ("535.54.03", "12.2", "whole"),
        ("535.309.01", "12.8", "minor"),
        ("525.60.11", "12.0", ""),
        ("525", "12.9", "minor"),
        ("535", "13.0", ""),
        ("580", "13.0", "whole"),
        ("580.65.06", "13.3", "minor"),
        ("580.65.05", "13.0", ""),
        ("610", "11.8", "whole"),
        ("700", "14.0", None),
        ("535", "14.0", ""),
        ("595", "13.0.2", "whole"),
    ],
)
def test_which_driver_runs_which_cuda(driver: str, cuda: str, expected: str | None) -> None:
    assert runs(driver, cuda) == expected


def test_a_branch_alone_counts_as_its_newest_version() -> None:
    assert at_least("525", "525.60.13")
    assert not at_least("525.60.11", "525.60.13")
    assert native_cuda("535") == "12.2"
    assert native_cuda("570.124.06") == "12.8"


@pytest.mark.parametrize(
    ("stack", "gpus", "words"),
    [
        (
            Stack("535", "13.0"),
            [H100],
            ["does not run programs of CUDA 13.0, which needs 580.65.06 or newer"],
        ),
        (
            Stack("535", "13.0"),
            [H100],
            ["works: driver 535 with CUDA 12.2, or driver 580 or newer with CUDA 13.0"],
        ),
        (Stack("580", "13.0"), [V100], ["needs CUDA older than 13.0, not 13.0 (cuda_toolkit_version)"]),
        (Stack("580", "13.0"), [V100], ["what works: driver 580 with CUDA 12.9"]),
        (Stack("590", "12.9"), [V100], ["needs a driver older than 590", "driver 575 to 580 with CUDA 12.9"]),
        (Stack("570", "12.4"), [B200], ["needs CUDA 12.8 or newer, not 12.4", "driver 570 with CUDA 12.8"]),
        (Stack("550", "12.8"), [B200], ["needs a driver 570 or newer, not 550", "driver 570 or newer with CUDA 12.8"]),
        (Stack("575", "12.9"), [B300], ["needs a driver 580 or newer, not 575"]),
        (Stack("580"), [B200, V100], []),
        (Stack("590"), [B300, V100], ["Tesla V100-SXM2-32GB (Volta) needs a driver older than 590"]),
        (Stack("535", wheel="13.0", torch="2.9.1"), [H100], ["does not run PyTorch 2.9.1 for CUDA 13.0"]),
        (Stack("535", wheel="13.0"), [H100], ["driver 535 with wheels for CUDA 12.1, or driver 580 or newer"]),
        (Stack("580", wheel="13.0", torch="2.9.1"), [V100], ["holds code for compute capabilities 7.5 to 12.0"]),
        (Stack("580", wheel="12.6", torch="2.8.0"), [B200], ["driver 580 with wheels for CUDA 13.0"]),
        (Stack("580", wheel="12.8", torch="2.8.0"), [V100], ["capabilities 7.5 to 12.0"]),
        (Stack("580", wheel="12.8", torch="2.9.1"), [V100], []),
        (Stack("580", wheel="12.8", torch="2.8.0"), [H100, L40S, B200], []),
        (Stack("580", wheel="12.8", nccl="2.27.3", nccl_cuda="13"), [H100], ["NCCL 2.27.3 is built for CUDA 13"]),
        (Stack("580", nccl="2.21.5", nccl_cuda="12"), [B200], ["needs NCCL 2.25 or newer, not 2.21.5"]),
        (Stack("580", "13.0", nccl="2.22.3", nccl_cuda="12.4"), [H100], ["the toolkit for 13.0"]),
        (Stack("", "13.0"), [H100], []),
        (Stack("535", "12.8"), [H100], []),
        (Stack("610", "13.9"), [H100], []),
        (Stack("535"), [{"architecture": None, "name": None}], []),
    ],
)
def test_what_does_not_go_together_is_said_with_what_would(
    stack: Stack, gpus: list[dict[str, Any]], words: list[str]
) -> None:
    said = problems(stack, gpus)
    assert bool(said) == bool(words), said
    for word in words:
        assert word in " ".join(said)


def test_a_toolkit_that_only_compiles_here_is_not_compared_with_the_driver() -> None:
    assert problems(Stack("535", "13.0"), [H100])
    assert not problems(Stack("535", "13.0"), [H100], toolkit_runs=False)
    assert problems(Stack("535", "13.0"), [V100], toolkit_runs=False)


def test_a_restriction_is_a_note() -> None:
    (note,) = notes(Stack("535", "12.8"))
    assert "CUDA 12.8 is newer than driver 535 (12.2)" in note
    assert not notes(Stack("570", "12.8"))


@pytest.mark.parametrize(
    ("number", "architecture", "product"),
    [
        (0x2330, "Hopper", ""),
        (0x1DB6, "Volta", ""),
        (0x20B2, "Ampere", r"\bA(100|800|30)\b"),
        (0x2235, "Ampere", ""),
        (0x26B9, "Ada", ""),
        (0x1EB8, "Turing", ""),
        (0x2901, "Blackwell", r"B[12]00"),
        (0x3182, "Blackwell", r"B300"),
    ],
)
def test_a_gpu_without_a_driver_is_known_by_its_number_on_the_bus(number: int, architecture: str, product: str) -> None:
    gpu = kind({"pci_device": number})
    assert gpu is not None
    assert gpu.architecture == architecture
    if architecture != "Ampere":
        assert gpu.product in (product, "")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"torch": "2.8.0+cu128", "nvidia-nccl-cu12": "2.27.3"}, Stack("", "", "12.8", "2.8.0", "2.27.3", "12")),
        ({"torch": "2.9.1", "nvidia-cuda-runtime-cu12": "12.8.90"}, Stack(wheel="12.8", torch="2.9.1")),
        ({"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}, Stack(wheel="13.0", torch="2.13.0")),
        ({"torch": "2.13.0+cpu", "nvidia-cuda-runtime-cu12": None}, Stack()),
        ({"torch": "2.5.1+cu118"}, Stack(wheel="11.8", torch="2.5.1")),
        ({"numpy": "2.4.6"}, Stack()),
    ],
)
def test_the_lock_says_for_which_cuda_pytorch_is_built(versions: dict[str, str | None], expected: Stack) -> None:
    assert wheel_stack(versions) == expected


def test_the_data_has_its_shape() -> None:
    assert all(
        re.fullmatch(r"\d\d\.\d", cuda) and re.fullmatch(r"\d{3}(\.\d+){1,2}", least) for cuda, least in CUDA.items()
    )
    assert list(CUDA) == sorted(CUDA, key=numbers)
    assert list(CUDA.values()) == sorted(CUDA.values(), key=numbers)
    assert set(CUDA_MAJOR) == {numbers(cuda)[0] for cuda in CUDA} == set(NCCL)
    assert list(BRANCHES) == sorted(BRANCHES)
    assert {int(least[:3]) for cuda, least in CUDA.items() if numbers(cuda) >= (12, 8)} <= set(BRANCHES)
    assert [row.first for row in PCI] == sorted((row.first for row in PCI), reverse=True)
    assert {row.architecture for row in PCI} == {gpu.architecture for gpu in GPUS}


def test_every_gpu_has_a_driver_and_a_cuda_that_serve_it() -> None:
    for gpu in GPUS:
        assert any(gpu.driver_from <= branch < (gpu.driver_until or 999) for branch in BRANCHES), gpu
        assert gpu.cuda_from in CUDA
        assert not gpu.cuda_until or gpu.cuda_until in CUDA
        assert runs(str(gpu.driver_from), gpu.cuda_from) != "", gpu
        assert any(wheel.lowest and numbers(wheel.highest)[0] >= numbers(gpu.capability)[0] for wheel in WHEELS)
