"""RDMA settings of Ethernet interfaces on trees like those of ConnectX adapters and of software devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_look as look
from ansible_collections.gpuops.cluster.plugins.module_utils import _roce as roce


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """mlx5_0 with two ports below one function, rxe0 on eth9."""
    for port, link in ((1, "ens1f0"), (2, "ens1f1")):
        put(tmp_path, f"class/infiniband/mlx5_0/ports/{port}/state", "4: ACTIVE")
        put(tmp_path, f"class/infiniband/mlx5_0/device/net/{link}/dev_port", str(port - 1))
    put(tmp_path, "class/infiniband/rxe0/ports/1/state", "4: ACTIVE")
    put(tmp_path, "class/infiniband/rxe0/parent", "eth9")
    for link in ("ens1f0", "ens1f1", "eth9", "eth8"):
        put(tmp_path, f"class/net/{link}/type", "1")
    return tmp_path


def test_each_interface_has_its_port(tree: Path) -> None:
    assert roce.devices("ens1f0", str(tree)) == [("mlx5_0", 1)]
    assert roce.devices("ens1f1", str(tree)) == [("mlx5_0", 2)]
    assert roce.devices("eth9", str(tree)) == [("rxe0", 1)]
    assert roce.devices("eth8", str(tree)) == []


def test_software_devices_count_as_rdma(tree: Path) -> None:
    assert look.Links(str(tree)).match({"rdma": True}) == ["eth9"]


def test_the_traffic_class_is_read_back(tree: Path) -> None:
    config = tree / "config"
    assert roce.get_cm("eth9", str(tree), str(config)) == ({"tos": 0}, ""), "nobody has set one"
    put(config, "rdma_cm/rxe0/ports/1/default_roce_tos", "0")
    assert roce.write_tos("rxe0", 1, 106, lambda *_argv: (1, "", "not needed"), str(config)) == ""
    assert roce.get_cm("eth9", str(tree), str(config)) == ({"tos": 106}, "")
    assert roce.get_cm("eth8", str(tree), str(config))[1].startswith("no RDMA device of this interface")


def test_a_kernel_without_it_says_so(tree: Path) -> None:
    words = "modprobe: FATAL: Module rdma_cm not found in directory /lib/modules/6.1.0"
    assert roce.write_tos("rxe0", 1, 106, lambda *_argv: (1, "", words + "\n"), str(tree / "config")) == words


def test_a_device_that_has_gone_is_an_error_not_a_crash(tree: Path) -> None:
    (tree / "config/rdma_cm").mkdir(parents=True)
    assert "No such file" in roce.write_tos("rxe0", 1, 106, lambda *_argv: (0, "", ""), str(tree / "config"))


def test_congestion_control_needs_both_ends(tree: Path) -> None:
    for end in ("roce_np", "roce_rp"):
        for priority in range(8):
            put(tree, f"class/net/ens1f0/ecn/{end}/enable/{priority}", "1" if end == "roce_np" else "0")
    assert roce.get_ecn("ens1f0", str(tree))[0]["3"] is False
    assert roce.put_ecn("ens1f0", {"3": True}, str(tree)) == ""
    values = roce.get_ecn("ens1f0", str(tree))[0]
    assert [p for p, on in values.items() if on] == ["3"]


def test_a_driver_without_switches_is_skipped_with_a_reason(tree: Path) -> None:
    assert roce.get_ecn("eth9", str(tree)) == ({}, roce.NO_ECN)
    assert "No such file" in roce.put_ecn("eth9", {"3": True}, str(tree))
