# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small parts of the gate: compiler flags, command lines, the judgement of single launches of real logs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.filter.nccl_results import FilterModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_judge as judging
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_launch as launching
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_leaf_switches as leaves
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_probe as probing
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_transport as transport
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_arch import compute_capability, gencode

parse = FilterModule().filters()["nccl_results"]
H100, A40 = {"name": "NVIDIA H100 PCIe", "architecture": "Hopper"}, {"name": "NVIDIA A40", "architecture": "Ampere"}
CUDA13 = "compute_75 compute_80 compute_86 compute_87 compute_88 compute_89 compute_90 compute_100 compute_120"
TABLE = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 1 iters: 20 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid  15784 on  node00001 device  0 [0009:01:00] NVIDIA GH200 120GB
#  Rank  1 Group  0 Pid  24926 on  node00002 device  0 [0009:01:00] NVIDIA GH200 120GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1   339.61    3.09    3.09       0   335.85    3.12    3.12       0
     2097152        524288     float     sum      -1   555.93    {rate}       {wrong}   361.77    5.80    5.80       0
# Out of bounds values : {wrong} {verdict}
# Avg bus bandwidth    : 14.9966
#
"""
GOOD = TABLE.format(rate="3.77    3.77", wrong=0, verdict="OK")


@pytest.mark.parametrize(
    ("name", "architecture", "expected"),
    [
        ("Tesla V100-SXM2-16GB", "Volta", 70),
        ("Tesla T4", "Turing", 75),
        ("NVIDIA A100-SXM4-80GB", "Ampere", 80),
        ("NVIDIA A10", "Ampere", 86),
        ("NVIDIA L40S", "Ada Lovelace", 89),
        ("NVIDIA H200", "Hopper", 90),
        ("NVIDIA B200", "Blackwell", 100),
        ("NVIDIA GB200", "Blackwell", 100),
        ("NVIDIA B300 SXM6 AC", "Blackwell", 103),
        ("NVIDIA GeForce RTX 5090", "Blackwell", 120),
        ("NVIDIA Future", "Rubin", None),
        ("NVIDIA Unknown", None, None),
    ],
)
def test_compute_capability(name: str, architecture: Any, expected: Any) -> None:
    assert compute_capability({"name": name, "architecture": architecture}) == expected


def test_gencode_covers_the_fleet_once() -> None:
    flags = gencode([H100, A40, H100], CUDA13)
    assert flags == {
        "flags": "-gencode=arch=compute_86,code=sm_86 -gencode=arch=compute_90,code=sm_90",
        "problem": "",
    }
    assert gencode([], "") == {"flags": "", "problem": ""}


def test_gencode_refuses_what_the_toolkit_does_not_know() -> None:
    assert "sm_70 is older" in gencode([{"name": "V100", "architecture": "Volta"}], CUDA13)["problem"]
    assert (
        "sm_120 is newer"
        in gencode([{"name": "RTX 5090", "architecture": "Blackwell"}], "compute_80 compute_90")["problem"]
    )
    assert "nccl_tests_cuda_architectures" in gencode([{"name": "X", "architecture": "Rubin"}])["problem"]
    assert gencode([{"name": "X", "architecture": "Rubin"}], CUDA13, ["120"])["problem"] == ""


def outcome(stdout: str = "", stderr: str = "", rc: int = 0, timed_out: bool = False) -> dict[str, Any]:
    return {"rc": rc, "stdout": stdout, "stderr": stderr, "seconds": 3.0, "timed_out": timed_out}


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        (outcome(GOOD), "ok", ""),
        (outcome(GOOD, timed_out=True), "hang", "did not end"),
        (outcome(TABLE.format(rate="3.77    3.77", wrong=4, verdict="FAILED"), rc=7), "wrong", "wrong data"),
        (outcome(GOOD, "srun: error: n2: task 1: Bus error", rc=135), "crash", "Bus error"),
        (outcome("USAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n"), "no_rows", "no usable result"),
        (outcome(""), "no_rows", "no usable result"),
        (outcome(GOOD.split("     2097152", maxsplit=1)[0]), "no_rows", "breaks off"),
        (outcome("\n".join(line for line in GOOD.splitlines() if "Rank  1" not in line)), "ranks", "1 ranks"),
    ],
    ids=["good", "hang", "wrong", "bus error", "usage", "silence", "cut", "one rank"],
)
def test_single_launches(given: dict[str, Any], status: str, words: str) -> None:
    sample = judging.sample(given, parse(given["stdout"]), "all_reduce", 2)
    assert sample["status"] == status
    assert words in sample["detail"]


def test_only_the_largest_size_counts_and_slow_figures_keep_their_digits() -> None:
    sample = judging.sample(outcome(GOOD), parse(GOOD), "all_reduce", 2)
    assert (sample["size"], sample["busbw"], sample["in_place"]) == (2097152, 3.77, 5.8)
    slow = GOOD.replace("555.93    3.77    3.77", "555930.12    0.00    0.00")
    assert judging.sample(outcome(slow), parse(slow), "all_reduce", 2)["busbw"] == pytest.approx(0.00377, rel=0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "a\nsrun: error: n2: task 5: Segmentation fault\nsrun: error: n1: tasks 0-3: Terminated",
            "task 5: Segmentation",
        ),
        ("-----\nHost key verification failed.\n* not finding\n-----", "Host key verification failed."),
        ("n1: Test NCCL failure common.cu:1012 'unhandled cuda error'\nn1: Test failure", "unhandled cuda error"),
        ("", "no output"),
    ],
)
def test_last_words(text: str, words: str) -> None:
    assert words in judging.last_words(text)


def settings() -> dict[str, Any]:
    return {
        "environment": {"NCCL_SOCKET_IFNAME": "eth1"},
        "slurm_mpi": "pmix",
        "slurm_options": ["--partition=gpu"],
        "mpirun_options": [],
        "job_name": "nccl-gate",
        "wait": 60,
    }


NODES = [
    {"slurm_name": "n1", "mpi_host": "10.0.0.1", "gpus": 8},
    {"slurm_name": "n2", "mpi_host": "10.0.0.2", "gpus": 8},
]


def test_slurm_holds_all_nodes_and_starts_steps() -> None:
    slurm = launching.Slurm(settings(), NODES)
    opening = slurm.open(300)
    assert {"--exclusive", "--nodes=2", "--nodelist=n1,n2", "--partition=gpu", "--time=6"} <= set(opening)
    assert slurm.opened({"rc": 0, "stdout": "", "stderr": "salloc: Granted job allocation 42\n"}) == ""
    command = slurm.command("x", NODES, 8, ["all_reduce_perf"], {})
    assert {"--jobid=42", "--ntasks=16", "--ntasks-per-node=8", "--mpi=pmix", "--kill-on-bad-exit=1"} <= set(command)
    assert command[-1] == "all_reduce_perf"
    assert launching.with_devices(["perf"], [2, 5]) == ["env", "CUDA_VISIBLE_DEVICES=2,5", "perf"]
    assert slurm.close() == ["scancel", "42"]
    refused = slurm.opened({"rc": 1, "stdout": "", "stderr": "salloc: Pending job allocation 9\nsalloc: error: busy\n"})
    assert refused == "salloc: error: busy"


def test_nodes_are_given_back_when_the_control_node_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard itself, with a Slurm of two jobs: one control node is silent, the other job has ended."""
    for name, text in (("squeue", "cat jobs"), ("scancel", 'echo "$1" >>cancelled; : >jobs')):
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path} && {text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "jobs").write_text("142\n42\n", encoding="utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    leases = []
    for job, silence in (("42", "0"), ("4", "0"), ("142", "9999")):
        slurm = launching.Slurm(settings(), NODES)
        slurm.job = job
        command = [*slurm.guard()[:-1], silence]
        leases.append(Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()))
        os.utime(leases[-1], (0, 0) if job == "42" else None)
    deadline = time.monotonic() + 60
    while any(lease.exists() for lease in leases) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [lease for lease in leases if lease.exists()], "guards leave when their job has ended"
    assert (tmp_path / "cancelled").read_text(encoding="utf-8") == "42\n"


def test_mpirun_maps_ranks_and_passes_variables() -> None:
    variables = launching.environment(settings(), 2)
    words = " ".join(launching.Mpirun(settings(), NODES).command("x", NODES, 8, ["all_reduce_perf"], variables))
    assert "--host 10.0.0.1:8,10.0.0.2:8" in words
    assert "-np 16" in words
    assert "-x NCCL_ALGO -x NCCL_SOCKET_IFNAME" in words


def test_probe_lines_survive_a_launchers_prefix() -> None:
    text = "0: GATE\tname=n1\tmemlock=unlimited\tmissing=\nnoise\n"
    text += "[1,1]<stdout>:GATE\tname=n2\tmemlock=64\tmissing=libmpi.so.40\n"
    found = probing.read_probe(text)
    assert found["n1"]["memlock"] == "unlimited"
    assert found["n2"]["missing"] == "libmpi.so.40"


def test_outliers_need_a_fleet_and_a_difference() -> None:
    fleet = {f"n{i}": 479.0 + i / 10 for i in range(9)}
    assert judging.outliers({**fleet, "n9": 440.0}) == ["n9"]
    assert judging.outliers({**fleet, "n9": 477.5}) == []
    assert judging.outliers({"n1": 400.0, "n2": 480.0}) == []


def test_leaves_are_read_from_slurm(tmp_path: Path) -> None:
    """The script through a real shell, with what Slurm prints for a tree of two levels and for blocks."""
    (tmp_path / "scontrol").write_text(
        """#!/bin/sh
if [ "$2" = hostnames ]; then case $3 in "n[1-2]") printf 'n1\\nn2\\n' ;; *) echo "$3" ;; esac; exit; fi
echo 'SwitchName=leafa Level=0 LinkSpeed=1 Nodes=n[1-2]'
echo 'SwitchName=leafb Level=0 LinkSpeed=1 Nodes=n3'
echo 'SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=leaf[a-b]'
echo 'BlockName=b1 BlockIndex=0 Nodes=n9 BlockSize=1'
"""
    )
    (tmp_path / "scontrol").chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", leaves.ASK], capture_output=True, text=True, check=True, env=path)
    assert leaves.known(done.stdout) == {"n1": "leafa", "n2": "leafa", "n3": "leafb", "n9": "b1"}


def test_ways_are_read_from_what_nccl_writes(tmp_path: Path) -> None:
    """The script through a real shell, with lines of several releases of NCCL."""
    lines = """
n1:11:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
n1:11:11 [0] NCCL INFO Bootstrap: Using [0]ib0:10.1.0.1<0>
n1:11:12 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>
n1:11:12 [0] NCCL INFO Using network IB
n1:11:12 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels
n1:11:12 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
n1:11:12 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/3(11)/GDRDMA
n1:11:12 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] [send] via NET/IB/0/GDRDMA/Shared
n1:11:12 [0] NCCL INFO Channel 02/0 : 8[0] -> 15[7] [send] via NET/AWS Libfabric/2
n1:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
n1:11:12 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via SHM/direct/direct
"""
    (tmp_path / "n1.11.log").write_text(lines)
    words = ["sh", "-c", transport.COLLECT, "collect", str(tmp_path), transport.WAYS]
    plain = {**os.environ, "LC_ALL": "C"}
    ways = transport.read(subprocess.run(words, capture_output=True, text=True, check=True, env=plain).stdout)
    assert ways == {
        "via NET/IB/GDRDMA": 2,
        "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels": 1,
        "Bootstrap : Using eth0": 1,
        "Bootstrap: Using [0]ib0": 1,
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]": 1,
        "NVLS multicast support is available": 1,
        "Using network IB": 1,
        "via NET/AWS Libfabric": 1,
        "via P2P/CUMEM": 1,
        "via SHM/direct": 1,
    }
    assert transport.words(ways) == (
        "transports NET/IB/GDRDMA (2), NVLS, NET/AWS Libfabric (1), P2P/CUMEM (1), SHM/direct (1); channels 24 coll "
        "channels, 24 collnet channels, 16 nvls channels, 32 p2p channels; first contact over eth0, ib0; "
        "devices [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; network IB"
    )
    assert not list(tmp_path.iterdir()), "nothing is left on the node"
