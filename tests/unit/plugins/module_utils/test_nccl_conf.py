"""What /etc/nccl.conf says for machines of several kinds, and what it must not say."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _nccl_conf as nccl

ROOT = "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0"
GPUS = [f"{ROOT}/0000:19:00.0/0000:1b:00.0"]


def link(name: str, *addresses: str) -> dict[str, Any]:
    return {"name": name, "mtu": 1500, "addresses": list(addresses)}


def device(
    name: str, pci: str = "", rate: float = 400, layer: str = "infiniband", state: str = "active", gids: Any = ()
) -> dict[str, Any]:
    entries = [{"index": i, "gid": g, "type": t, "netdev": "e"} for i, g, t in gids]
    port = {"port": 1, "state": state, "link_layer": layer, "rate_gbps": rate, "gids": entries}
    return {"name": name, "pci": pci, "ports": [port]}


def gid4(index: int, last: int, kind: str = "RoCE v2") -> tuple[int, str, str]:
    return index, f"0000:0000:0000:0000:0000:ffff:0a00:{last:04x}", kind


LOCAL = (0, "fe80:0000:0000:0000:5aa2:e1ff:fe47:2e6d", "RoCE v2")


def lines(*devices: dict[str, Any], gid_index: bool = False, **options: Any) -> dict[str, str]:
    given: dict[str, Any] = {"paths": {}, "gpus": [], "include": [], "exclude": [], "subnets": [], **options}
    choice = nccl.choose(nccl.active_ports({"rdma": list(devices)}), **given)
    return {line.name: line.value for line in nccl.hca_lines(choice, gid_index)[0]}


@pytest.mark.parametrize(
    ("subnet", "default", "exact", "value"),
    [
        ("10.0.0.0/16", "eno1", True, "=ens5"),
        ("10.0.0.0/16", "eno1", False, "ens5"),
        ("", "eno1", True, "=eno1"),
        ("fd00::/8", "", True, "=ens5"),
    ],
)
def test_socket_interface(subnet: str, default: str, exact: bool, value: str) -> None:
    links = [
        link("eno1", "192.168.1.7/24"),
        link("ens5", "10.0.3.7/16", "fd00::7/64"),
        link("docker0", "172.17.0.1/16"),
    ]
    assert nccl.socket_line(links, subnet, default, exact).value == value


def test_the_link_to_the_bmc_does_not_count() -> None:
    links = [link("enx0a", "169.254.3.1/24"), link("eth0", "10.0.0.7/24"), link("docker0", "172.17.0.1/16")]
    assert nccl.socket_line(links, "", "", True).value == "=eth0"
    with pytest.raises(nccl.Undecided, match="holds none"):
        nccl.socket_line(links, "169.254.0.0/16", "", True)


def test_a_subnet_with_several_interfaces_is_refused() -> None:
    links = [link("eth1", "10.0.0.1/16"), link("eth2", "10.0.0.2/16")]
    with pytest.raises(nccl.Undecided, match="exactly one interface, and holds eth1, eth2"):
        nccl.socket_line(links, "10.0.0.0/16", "", True)
    with pytest.raises(nccl.Undecided, match="set infiniband_socket_subnet"):
        nccl.socket_line(links, "", "", True)


def test_only_active_infiniband_near_a_gpu_at_full_rate() -> None:
    paths = {
        "0000:1a:00.0": f"{ROOT}/0000:19:01.0/0000:1a:00.0",
        "0000:a1:00.0": "/sys/devices/pci0000:a0/0000:a0:01.0/x",
    }
    choice = nccl.choose(
        nccl.active_ports(
            {
                "rdma": [
                    device("mlx5_9", "0000:a1:00.0"),
                    device("mlx5_2", "0000:1a:00.0"),
                    device("mlx5_3", "0000:1c:00.0", state="down"),
                    device("mlx5_bond_0", "0000:31:00.0", 100, "ethernet"),
                ]
            }
        ),
        paths,
        GPUS,
        [],
        [],
        [],
    )
    line = nccl.hca_lines(choice, False)[0][0]
    assert line.value == "=mlx5_2:1"
    assert "without mlx5_bond_0:1: Ethernet beside InfiniBand" in line.reason
    assert "without mlx5_9:1: no GPU below the same PCIe root port" in line.reason


def test_every_port_stays_where_nothing_tells_them_apart() -> None:
    """A virtual machine shows each device below a root of its own."""
    paths = {
        "0001:00:00.0": "/sys/devices/pci0001:00/0001:00:00.0",
        "0002:00:00.0": "/sys/devices/pci0002:00/0002:00:00.0",
    }
    pair = [device("mlx5_1", "0002:00:00.0"), device("mlx5_0", "0001:00:00.0")]
    assert lines(*pair, paths=paths, gpus=["/sys/devices/pci0003:00/0003:00:00.0"]) == {
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"
    }


def test_order_is_that_of_the_slots_not_of_the_names() -> None:
    assert lines(device("mlx5_10", "0000:1a:00.0"), device("mlx5_2", "0000:5d:00.0")) == {
        "NCCL_IB_HCA": "=mlx5_10:1,mlx5_2:1"
    }


def test_include_and_exclude() -> None:
    pair = [device("mlx5_0"), device("mlx5_1", rate=100)]
    assert lines(*pair, include=["mlx5_1"])["NCCL_IB_HCA"] == "=mlx5_1:1"
    assert lines(*pair, exclude=["mlx5_0:1"])["NCCL_IB_HCA"] == "=mlx5_1:1"


def test_roce_ports_without_an_address_are_left_out() -> None:
    found = lines(device("a", layer="ethernet", gids=[LOCAL, gid4(3, 1)]), device("b", layer="ethernet", gids=[LOCAL]))
    assert found == {"NCCL_IB_HCA": "=a:1"}
    pair = [device("a", layer="ethernet", gids=[gid4(3, 1)]), device("b", layer="ethernet", gids=[gid4(3, 0x100)])]
    assert lines(*pair, subnets=["10.0.1.0/24"]) == {"NCCL_IB_HCA": "=b:1"}


@pytest.mark.parametrize(
    ("first", "second", "index"),
    [
        ([LOCAL, gid4(2, 1, "IB/RoCE v1"), gid4(3, 1)], [LOCAL, gid4(3, 2)], "3"),
        ([LOCAL, gid4(3, 1)], [LOCAL, gid4(5, 2)], None),
        ([LOCAL, (3, "fd00::1", "RoCE v2"), gid4(5, 1)], [LOCAL, (3, "fd00::2", "RoCE v2"), gid4(5, 2)], "5"),
        ([LOCAL], [LOCAL], None),
    ],
)
def test_gid_index_is_common_routable_and_only_on_request(first: Any, second: Any, index: str | None) -> None:
    pair = [device("a", layer="ethernet", gids=first), device("b", layer="ethernet", gids=second)]
    assert lines(*pair, gid_index=True).get("NCCL_IB_GID_INDEX") == index
    assert "NCCL_IB_GID_INDEX" not in lines(*pair)


def test_ipv6_only_fabric_says_so() -> None:
    only6 = device("a", layer="ethernet", gids=[LOCAL, (1, "fd00::1", "RoCE v2")])
    assert lines(only6)["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"
    assert "NCCL_IB_ADDR_FAMILY" not in lines(device("a", layer="ethernet", gids=[LOCAL, gid4(3, 1)]))


def test_no_ports_no_lines() -> None:
    assert lines() == {}
    assert nccl.active_ports({"ethernet": []}) == []


def test_comments_hold_no_equals_sign() -> None:
    text = nccl.render([nccl.Line("NCCL_DEBUG", "WARN", "a=b")], "by us")
    assert [line for line in text.splitlines() if line.startswith("#") and "=" in line] == []
    assert text.endswith("NCCL_DEBUG=WARN\n")


def test_the_index_is_that_of_an_address_in_the_wanted_network() -> None:
    """A port with two addresses: the lower index belongs to the other network."""
    other = (1, "0000:0000:0000:0000:0000:ffff:0a08:0001", "RoCE v2")
    port = device("mlx5_0", layer="ethernet", gids=[LOCAL, other, gid4(2, 1)])
    assert lines(port, gid_index=True)["NCCL_IB_GID_INDEX"] == "1"
    assert lines(port, gid_index=True, subnets=["10.0.0.0/24"])["NCCL_IB_GID_INDEX"] == "2"


def test_the_traffic_class_of_the_ports_is_told_where_they_agree() -> None:
    ports = [device(name, layer="ethernet", gids=[gid4(3, 1)]) for name in ("mlx5_0", "mlx5_1")]
    choice = nccl.choose(nccl.active_ports({"rdma": ports}), {}, [], [], [], [])
    found = {n.name: n.value for n in nccl.hca_lines(choice, False, {"mlx5_0:1": 106, "mlx5_1:1": 106})[0]}
    assert found["NCCL_IB_TC"] == "106"
    for classes in ({"mlx5_0:1": 106}, {}, None):
        assert "NCCL_IB_TC" not in {n.name for n in nccl.hca_lines(choice, False, classes)[0]}
