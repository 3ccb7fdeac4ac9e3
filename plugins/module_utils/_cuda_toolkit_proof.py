# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves that nvcc is a release, compiles a kernel, and runs it where a driver is loaded. Private."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

Run = Callable[..., tuple[int, str, str]]
DRIVER = "/proc/driver/nvidia/version"
KERNEL = r"""
#include <cstdio>
#include <cuda_runtime.h>

__global__ void sum(int *total) { atomicAdd(total, threadIdx.x); }

int main()
{
    int devices = 0, *total = nullptr, result = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    for (int device = 0; error == cudaSuccess && device < devices; device++) {
        cudaSetDevice(device);
        cudaMalloc(&total, sizeof(int));
        cudaMemset(total, 0, sizeof(int));
        sum<<<1, 256>>>(total);
        error = cudaMemcpy(&result, total, sizeof(int), cudaMemcpyDeviceToHost);
        cudaFree(total);
        if (error == cudaSuccess && result != 32640) {
            printf("GPU %d computed %d, expected 32640\n", device, result);
            return 1;
        }
    }
    if (error != cudaSuccess) {
        printf("the compiled kernel did not run: %s\n", cudaGetErrorString(error));
        return 1;
    }
    printf("ran on %d GPUs\n", devices);
    return 0;
}
"""


@dataclass
class Proof:
    """What was proven, what was not and why, and the reason why it failed; empty where it did not."""

    compiled: bool = False
    not_run: list[str] = field(default_factory=list)
    ran: str = ""
    wrong: str = ""


def _said(run_command: Run, *argv: str) -> tuple[int, str]:
    rc, out, err = run_command(list(argv), expand_user_and_vars=False)
    return rc, "\n".join(part.strip() for part in (out, err) if part.strip())


def _compile_and_run(run_command: Run, nvcc: str, architectures: list[str], run_kernel: bool, work: str) -> Proof:
    program, source = os.path.join(work, "verify"), os.path.join(work, "verify.cu")
    with open(source, "w", encoding="utf-8") as file:
        file.write(KERNEL)
    codes = [word for arch in architectures for word in ("-gencode", f"arch=compute_{arch},code=sm_{arch}")]
    rc, said = _said(run_command, nvcc, *codes, "-o", program, source)
    if rc:
        return Proof(wrong=f"{said}\n{nvcc} could not compile for {' '.join(architectures)}".strip())
    if not run_kernel:
        return Proof(compiled=True, not_run=["not run: cuda_toolkit_run_kernel is false"])
    if not os.path.exists(DRIVER):
        return Proof(compiled=True, not_run=["not run: the test kernel compiles, but no NVIDIA driver is loaded here"])
    rc, said = _said(run_command, program)
    return Proof(compiled=True, wrong=said or f"the compiled kernel ended with {rc}") if rc else Proof(True, [], said)


def prove(run_command: Run, nvcc: str, release: str, architectures: list[str], run_kernel: bool) -> Proof:
    """Leaves nothing behind."""
    rc, said = _said(run_command, nvcc, "--version")
    if rc:
        return Proof(wrong=f"{nvcc} --version failed: {said}")
    if f"release {release}," not in said:
        named = "\n".join(line for line in said.splitlines() if "release" in line)
        return Proof(wrong=f"{nvcc} says '{named}', expected release {release}")
    work = tempfile.mkdtemp()
    try:
        return _compile_and_run(run_command, nvcc, architectures, run_kernel, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
