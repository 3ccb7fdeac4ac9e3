"""A host in Slurm's words: topology as slurmd prints it, GPU types, cores in Slurm's numbering."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_node as node
from hypothesis import given
from hypothesis import strategies as st

SMT = (
    "NodeName=gpu01 CPUs=224 Boards=1 SocketsPerBoard=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2063876\n"
    "UpTime=12-03:04:05\n"
)
MEMINFO = "MemTotal:       24655360 kB\nMemFree: 1 kB\n"


def device(index: int, **more: Any) -> dict[str, Any]:
    found = {"index": index, "minor": index, "name": "NVIDIA H100 80GB HBM3", "cpus": None, "mig": {"enabled": False}}
    return {**found, **more}


def test_slurmd_with_threads_and_two_sockets() -> None:
    assert node.parse_slurmd(SMT) == {
        "cpus": 224, "boards": 1, "sockets": 2, "cores": 56, "threads": 2, "memory_mib": 2063876,
    }  # fmt: skip


def test_slurmd_of_several_boards_counts_all_sockets() -> None:
    text = "NodeName=x CPUs=16 Boards=2 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000"
    assert node.parse_slurmd(text)["sockets"] == 4


def test_slurmd_that_says_more_than_we_read() -> None:
    text = "NodeName=x slurmd: Considering each NUMA node as a socket\n" + SMT.replace(
        "RealMemory", "Gres=gpu:2 RealMemory"
    )
    with pytest.raises(ValueError, match="CPUs"):
        node.parse_slurmd(text)
    assert node.parse_slurmd("slurmd: a word before\n" + SMT)["cpus"] == 224


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurmd: fatal: no",
        "NodeName=x CPUs=8 SocketsPerBoard=2",
        "NodeName=x CPUs=a SocketsPerBoard=1 CoresPerSocket=1",
    ],
)
def test_slurmd_without_an_answer_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="slurmd -C answered"):
        node.parse_slurmd(text)


def test_contradicting_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="24 CPUs are neither the 16 cores nor the 32 threads"):
        node.parse_slurmd("NodeName=x CPUs=24 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=1")


def test_lscpu_is_the_forecast() -> None:
    rows = "# CPU,Core,Socket\n" + "".join(f"{cpu},{cpu % 4},{cpu % 4 // 2}\n" for cpu in range(8))
    assert node.parse_lscpu(rows, MEMINFO) == {
        "cpus": 8, "boards": 1, "sockets": 2, "cores": 2, "threads": 2, "memory_mib": 24077,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10", "a10"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla T4", "t4"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("GeForce GTX 1080 Ti", "gtx1080ti"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000blackwell"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA TITAN V", "titanv"),
        ("", "gpu"),
        ("NVIDIA Graphics", "gpu"),
    ],
)
def test_types_of_products(product: str, kind: str) -> None:
    assert node.gres_type(product) == kind


def test_a_chosen_type_wins() -> None:
    assert node.gres_type("NVIDIA A100-SXM4-40GB", {"NVIDIA A100-SXM4-40GB": "a100_40g"}) == "a100_40g"


@given(st.text(max_size=40))
def test_every_type_can_stand_in_slurm_conf(product: str) -> None:
    kind = node.gres_type(product)
    assert kind and all(char.isascii() and (char.isalnum() or char == ".") for char in kind)


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_survive_the_round_trip(numbers: set[int]) -> None:
    assert node.expand_cpus(node.ranges(list(numbers))) == sorted(numbers)


def test_cores_are_slurms_numbers_not_the_kernels() -> None:
    # Two sockets of four cores, two threads each, numbered as Intel machines do: all even CPUs on socket 0.
    placement = {cpu: (cpu % 2, cpu % 8 // 2) for cpu in range(16)}
    assert node.slurm_cores("0,2,4,6,8,10,12,14", placement, 8) == "0-3"
    assert node.slurm_cores("1,3,5,7,9,11,13,15", placement, 8) == "4-7"
    assert node.slurm_cores("1,9", placement, 8) == "4-7"  # a part of a socket: Slurm takes whole ones only


def test_cores_that_cannot_be_told_are_left_out() -> None:
    placement = {cpu: (0, cpu) for cpu in range(4)}
    assert node.slurm_cores("0-51", placement, 4) == ""  # the GPU's CPUs are not this machine's
    assert node.slurm_cores("0-1", placement, 8) == ""  # Slurm counts other cores than the kernel
    assert node.slurm_cores(None, placement, 4) == ""
    assert node.slurm_cores("0-3", placement, 4) == ""  # near every core: says nothing


def test_gres_of_eight_gpus_linked_alike_needs_no_links() -> None:
    matrix = [["X" if a == b else "NV18" for b in range(8)] for a in range(8)]
    entries = node.node_gres({"devices": [device(i) for i in range(8)], "topology": {"gpus": matrix}})
    assert [entry["file"] for entry in entries] == [f"/dev/nvidia{i}" for i in range(8)]
    assert {entry["type"] for entry in entries} == {"h100"} and {entry["links"] for entry in entries} == {""}


def test_gres_of_pairs_has_links() -> None:
    matrix = [
        ["X", "NV4", "SYS", "SYS"],
        ["NV4", "X", "SYS", "SYS"],
        ["SYS", "SYS", "X", "NV4"],
        ["SYS", "SYS", "NV4", "X"],
    ]
    entries = node.node_gres({"devices": [device(i) for i in range(4)], "topology": {"gpus": matrix}})
    assert [entry["links"] for entry in entries] == ["-1,4,0,0", "4,-1,0,0", "0,0,-1,4", "0,0,4,-1"]


def test_the_file_comes_from_the_minor_number_not_from_the_index() -> None:
    entries = node.node_gres({"devices": [device(0, minor=3), device(1, minor=None), device(2, minor=0)]})
    assert [entry["file"] for entry in entries] == ["/dev/nvidia3", "/dev/nvidia0"]


def test_a_display_card_is_no_gres() -> None:
    gpu = {"devices": [device(0, name="NVIDIA A100-SXM4-80GB"), device(1, name="NVIDIA DGX Display")]}
    assert [entry["type"] for entry in node.node_gres(gpu)] == ["a100"]


def test_mig_instances_are_counted_and_opened_by_their_capabilities() -> None:
    minors = "gpu0/gi9/access 85\ngpu0/gi9/ci0/access 86\nconfig 1\nmonitor 2\n"
    part = {"uuid": "MIG-1", "gpu_instance": 9, "compute_instance": 0, "profile": "1g.10gb", "memory_mib": 9728}
    gpu = {"devices": [device(0, name="NVIDIA A100-SXM4-80GB", mig={"enabled": True, "devices": [part]})]}
    entries = node.node_gres(gpu, mig_files=node.parse_mig_minors(minors))
    assert [(entry["type"], entry["file"]) for entry in entries] == [
        ("a100_1g.10gb", "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap85,/dev/nvidia-caps/nvidia-cap86")
    ]


@pytest.mark.parametrize(
    ("gpu", "complete", "words"),
    [
        ({"state": "no_gpu"}, True, ""),
        ({}, True, ""),
        ({"state": "no_driver", "reason": "there is no nvidia-smi"}, False, "there is no nvidia-smi"),
        ({"state": "degraded", "problems": [{"code": "gpu_lost", "detail": "GPU 3 is lost"}]}, False, "GPU 3 is lost"),
        ({"state": "degraded", "problems": [{"code": "ecc_uncorrectable"}], "devices": [device(0)]}, True, ""),
        ({"state": "ok", "devices": [device(0), device(4, minor=None)]}, True, "GPU 4: the driver reports no minor"),
    ],
)
def test_notes(gpu: dict[str, Any], complete: bool, words: str) -> None:
    told = node.gpu_notes(gpu, node.node_gres(gpu))
    assert told[0] is complete and words in told[1] and bool(told[1]) is bool(words)


def test_memory_of_equal_machines_is_equal() -> None:
    assert node.usable_memory(2064200, 2) == node.usable_memory(2064300, 2) == 2022400
    assert node.usable_memory(2000, 2) == 1920
    assert node.usable_memory(10, 2) == 1
