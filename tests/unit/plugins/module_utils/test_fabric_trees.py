# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network facts: recordings put back into a sysfs, and trees made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _pci
from ansible_collections.gpuops.cluster.plugins.module_utils._fabric_facts import gather
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures, rdma_tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "infiniband"
EXPECTED = fixtures.expected("infiniband")
# Nothing that a host knows of itself: the fabric as a whole, and a tool that found no device.
NO_INPUT = ["ibnetdiscover-p-edr.txt", "ibnetdiscover-p-qdr-one.txt", "ibstatus-fatal-no-devices.txt"]


def codes(facts: dict[str, Any]) -> list[list[str]]:
    return [[problem["code"], problem["device"]] for problem in facts["problems"]]


def test_every_recording_has_an_expectation() -> None:
    assert sorted([*EXPECTED, *NO_INPUT]) == fixtures.names(FOLDER)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recording(name: str, tmp_path: Path) -> None:
    rdma_tree.from_recording(tmp_path, name, fixtures.text(FOLDER, name))
    facts, wanted = gather(str(tmp_path)), EXPECTED[name]
    assert {device["name"] for device in facts["rdma"]} == set(wanted["devices"])
    for device in facts["rdma"]:
        (port,) = device["ports"] or [{}]
        for key, value in wanted["devices"][device["name"]].items():
            assert {**device, **port}[key] == value, (device["name"], key)
    assert codes(facts) == wanted["problems"]


def test_without_a_network() -> None:
    assert gather("/nonexistent") == {"ethernet": [], "rdma": [], "problems": []}


def test_devices_are_in_natural_order(tmp_path: Path) -> None:
    for name in ("mlx5_10", "mlx5_2", "irdma0", "mlx5_bond_0"):
        rdma_tree.hca(tmp_path, name)
    assert [device["name"] for device in gather(str(tmp_path))["rdma"]] == [
        "irdma0",
        "mlx5_2",
        "mlx5_10",
        "mlx5_bond_0",
    ]


# Interfaces


def test_kinds_of_interfaces(tmp_path: Path) -> None:
    card = rdma_tree.pci(tmp_path, "0000:1b:00.0", numa_node="1")
    rdma_tree.netdev(tmp_path, "enp27s0f0np0", card, speed="100000", mtu="9000", carrier="1", phys_port_name="p0")
    rdma_tree.netdev(tmp_path, "enp27s0f0r0", card, phys_port_name="pf0vf0")
    vf = rdma_tree.pci(tmp_path, "0000:1b:00.2", numa_node="1")
    (vf / "physfn").symlink_to(card)
    rdma_tree.netdev(tmp_path, "enp27s0f0v0", vf, speed="-1")
    virtio = rdma_tree.pci(tmp_path, "0000:00:03.0", driver="virtio-pci", numa_node="-1") / "virtio1"
    rdma_tree.write(virtio)
    rdma_tree.netdev(tmp_path, "ens3", virtio, speed="4294967295", carrier="1")
    (rdma_tree.netdev(tmp_path, "bond0", uevent="DEVTYPE=bond", speed="200000", carrier="1") / "bonding").mkdir()
    rdma_tree.netdev(tmp_path, "bond0.100", uevent="DEVTYPE=vlan\nINTERFACE=bond0.100", carrier="0")
    (rdma_tree.netdev(tmp_path, "br0") / "bridge").mkdir()
    rdma_tree.netdev(tmp_path, "veth0")
    rdma_tree.netdev(tmp_path, "lo", type="772")
    rdma_tree.netdev(tmp_path, "ibp26s0", card, type="32")
    (tmp_path / "class/net/enp27s0f0np0/master").symlink_to(tmp_path / "class/net/bond0")
    found = {interface["name"]: interface for interface in gather(str(tmp_path))["ethernet"]}
    assert {name: interface["kind"] for name, interface in found.items()} == {
        "bond0": "bond",
        "bond0.100": "vlan",
        "br0": "bridge",
        "enp27s0f0np0": "physical",
        "enp27s0f0r0": "representor",
        "enp27s0f0v0": "virtual_function",
        "ens3": "physical",
        "veth0": "virtual",
    }
    assert found["enp27s0f0np0"] == {
        "name": "enp27s0f0np0",
        "kind": "physical",
        "mac": "02:00:00:00:00:01",
        "driver": "mlx5_core",
        "pci": "0000:1b:00.0",
        "numa_node": 1,
        "speed_mbps": 100000,
        "mtu": 9000,
        "carrier": True,
        "master": "bond0",
        "rdma_device": None,
    }
    assert (found["ens3"]["pci"], found["ens3"]["numa_node"], found["ens3"]["speed_mbps"]) == (
        "0000:00:03.0",
        None,
        None,
    )
    assert found["bond0.100"]["carrier"] is False and found["bond0.100"]["pci"] is None
    assert found["enp27s0f0v0"]["carrier"] is None and found["enp27s0f0v0"]["speed_mbps"] is None


def test_a_tree_without_links(tmp_path: Path) -> None:
    """Copies of sysfs, as bug reports have them, have folders in place of links."""
    device = tmp_path / "class/net/eth0/device"
    rdma_tree.write(device.parent, type="1", mtu="1500", address="02:00:00:00:00:02")
    rdma_tree.write(device, uevent="DRIVER=ice\nPCI_CLASS=20000\nPCI_SLOT_NAME=0000:3b:00.0", numa_node="0")
    (interface,) = gather(str(tmp_path))["ethernet"]
    assert (interface["pci"], interface["driver"], interface["numa_node"]) == ("0000:3b:00.0", "ice", 0)


# RDMA devices


def roce(tmp_path: Path, **files: str) -> Path:
    """One RoCE device in a slot of 16 lanes of generation 5; returns its PCI function."""
    device = rdma_tree.pci(
        tmp_path, "0000:1b:00.0", "0000:1a:01.0", numa_node="0",
        **{"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16", "max_link_speed": "32.0 GT/s PCIe",
           "max_link_width": "16", **files},
    )  # fmt: skip
    rdma_tree.write(device.parent, max_link_speed="32.0 GT/s PCIe", max_link_width="16")
    rdma_tree.netdev(tmp_path, "eth2", device, carrier="1", speed="400000")
    hca = rdma_tree.hca(
        tmp_path, "mlx5_0", device, node_guid="a088:c266:6b0c:5129", fw_ver="28.39.1002", board_id="MT_0000000838",
        hca_type="MT4129",
    )  # fmt: skip
    port = rdma_tree.port(
        hca, state="4: ACTIVE", phys_state="5: LinkUp", link_layer="Ethernet", rate="400 Gb/sec (4X NDR)", lid="0x0",
        sm_lid="0x0",
    )  # fmt: skip
    rdma_tree.gid(port, 0, "fe80:0000:0000:0000:a288:c2ff:fe2f:4555", "IB/RoCE v1", "eth2")
    rdma_tree.gid(port, 1, "fe80:0000:0000:0000:a288:c2ff:fe2f:4555", "RoCE v2", "eth2")
    rdma_tree.gid(port, 3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth2.100")
    rdma_tree.gid(port, 4, "0000:0000:0000:0000:0000:0000:0000:0000")
    rdma_tree.gid(port, 10, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth2")
    return device


def test_a_roce_device(tmp_path: Path) -> None:
    roce(tmp_path)
    facts = gather(str(tmp_path))
    (device,) = facts["rdma"]
    (port,) = device.pop("ports")
    assert device == {
        "name": "mlx5_0",
        "model": "MT4129",
        "guid": "a088:c266:6b0c:5129",
        "firmware": "28.39.1002",
        "board": "MT_0000000838",
        "pci": "0000:1b:00.0",
        "virtual_function": False,
        "numa_node": 0,
        "pcie": {"generation": 5, "generation_max": 5, "width": 16, "width_max": 16},
    }
    gids = port.pop("gids")
    assert port == {
        "port": 1,
        "state": "active",
        "physical_state": "LinkUp",
        "link_layer": "ethernet",
        "rate_gbps": 400,
        "lanes": 4,
        "speed": "NDR",
        "lid": 0,
        "sm_lid": 0,
        "netdevs": ["eth2", "eth2.100"],
    }
    assert [entry["index"] for entry in gids] == [0, 1, 3, 10]
    assert gids[2] == {
        "index": 3,
        "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001",
        "type": "RoCE v2",
        "netdev": "eth2.100",
    }
    assert facts["problems"] == []
    assert [interface["rdma_device"] for interface in facts["ethernet"]] == ["mlx5_0"]


@pytest.mark.parametrize(
    ("text", "rate", "lanes", "speed"),
    [
        ("2.5 Gb/sec (1X SDR)", 2.5, 1, "SDR"),
        ("10 Gb/sec (4X)", 10, 4, "SDR"),
        ("40 Gb/sec (4X QDR)", 40, 4, "QDR"),
        ("56 Gb/sec (4X FDR)", 56, 4, "FDR"),
        ("100 Gb/sec (4X EDR)", 100, 4, "EDR"),
        ("100 Gb/sec (2X HDR)", 100, 2, "HDR"),
        ("200 Gb/sec (4X HDR)", 200, 4, "HDR"),
        ("200 Gb/sec (2X NDR)", 200, 2, "NDR"),
        ("400 Gb/sec (4X NDR)", 400, 4, "NDR"),
        ("800 Gb/sec (8X NDR)", 800, 8, "NDR"),
        ("800 Gb/sec (4X XDR)", 800, 4, "XDR"),
        ("0 Gb/sec (4X XDR)", 800, 4, "XDR"),
        ("400 Gb/sec", 400, None, None),
        ("", None, None, None),
        ("nonsense", None, None, None),
    ],
)
def test_rates(text: str, rate: float | None, lanes: int | None, speed: str | None, tmp_path: Path) -> None:
    rdma_tree.port(rdma_tree.hca(tmp_path, "mlx5_0"), rate=text)
    port = gather(str(tmp_path))["rdma"][0]["ports"][0]
    assert (port["rate_gbps"], port["lanes"], port["speed"]) == (rate, lanes, speed)


def test_two_ports_of_one_function(tmp_path: Path) -> None:
    card = rdma_tree.pci(tmp_path, "0000:05:00.0", driver="mlx4_core")
    rdma_tree.netdev(tmp_path, "eth0", card, dev_port="0")
    rdma_tree.netdev(tmp_path, "ib0", card, dev_port="1", type="32")
    hca = rdma_tree.hca(tmp_path, "mlx4_0", card)
    rdma_tree.port(hca, 1)
    rdma_tree.port(hca, 2)
    (device,) = gather(str(tmp_path))["rdma"]
    assert [(port["port"], port["netdevs"]) for port in device["ports"]] == [(1, ["eth0"]), (2, ["ib0"])]


# Problems

UP = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "InfiniBand",
    "rate": "400 Gb/sec (4X NDR)",
    "lid": "0x5",
}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, []),
        ({"state": "1: DOWN", "phys_state": "2: Polling"}, ["port_down"]),
        ({"state": "1: DOWN", "phys_state": "3: Disabled"}, ["port_down"]),
        ({"state": "1: DOWN", "phys_state": "3: Disabled", "link_layer": "Ethernet"}, ["port_down"]),
        ({"state": "2: INIT", "lid": "0x0"}, ["port_initializing"]),
        ({"state": "3: ARMED"}, ["port_initializing"]),
        ({"lid": "0x0"}, ["no_lid"]),
        ({"lid": "0xffff"}, ["no_lid"]),
        ({"lid": "0x0", "link_layer": "Ethernet"}, []),
        ({"rate": "200 Gb/sec (4X HDR)"}, ["rate_degraded"]),
        ({"rate": "100 Gb/sec (1X NDR)"}, ["rate_degraded"]),
    ],
)
def test_one_port_among_equals(files: dict[str, str], found: list[str], tmp_path: Path) -> None:
    layer = {"link_layer": files["link_layer"]} if "link_layer" in files else {}
    for number in range(4):
        hca = rdma_tree.hca(tmp_path, f"mlx5_{number}", board_id="MT_0000000838")
        rdma_tree.port(hca, **{**UP, **layer, **(files if number == 2 else {})})
    assert codes(gather(str(tmp_path))) == [[code, "mlx5_2"] for code in found]


def test_ports_that_nobody_uses(tmp_path: Path) -> None:
    """One of four in use: the others were disabled on purpose."""
    off = {"state": "1: DOWN", "phys_state": "3: Disabled"}
    for number in range(4):
        hca = rdma_tree.hca(tmp_path, f"mlx5_{number}", board_id="MT_0000000359")
        rdma_tree.port(hca, **{**UP, "link_layer": "Ethernet", **(off if number else {})})
    assert gather(str(tmp_path))["problems"] == []


def test_different_boards_have_different_rates(tmp_path: Path) -> None:
    for number in range(6):
        hca = rdma_tree.hca(tmp_path, f"mlx5_{number}", board_id="MT_0000000838" if number < 4 else "MT_0000000359")
        rdma_tree.port(hca, **{**UP, **({} if number < 4 else {"rate": "100 Gb/sec (2X HDR)"})})
    assert gather(str(tmp_path))["problems"] == []


def test_a_narrow_link(tmp_path: Path) -> None:
    device = roce(tmp_path, current_link_width="8")
    assert codes(gather(str(tmp_path))) == [["pcie_degraded", "mlx5_0"]]
    (device.parent / "max_link_width").write_text("8\n")  # the slot has no more
    assert gather(str(tmp_path))["problems"] == []
    (device / "current_link_speed").write_text("16.0 GT/s PCIe\n")
    assert codes(gather(str(tmp_path))) == [["pcie_degraded", "mlx5_0"]]
    (device / "physfn").symlink_to(device.parent)  # a virtual function has no link of its own
    assert gather(str(tmp_path))["problems"] == []


def test_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rdma_tree.port(rdma_tree.hca(tmp_path, "mlx5_0", fw_ver="1"), **UP)
    real_open = open

    def guarded(path: Any, *rest: Any, **more: Any) -> Any:
        if str(path).endswith(("/state", "/lid")):
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *rest, **more)

    monkeypatch.setattr(_pci, "open", guarded, raising=False)
    facts = gather(str(tmp_path))
    assert codes(facts) == [["not_permitted", "mlx5_0"]]
    assert "/mlx5_0/ports/1/state and 1 more" in facts["problems"][0]["detail"]
    assert facts["rdma"][0]["ports"][0]["state"] is None


FILES = ("state", "phys_state", "link_layer", "rate", "lid", "sm_lid")


@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=30)))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content(tmp_path: Path, content: dict[str, bytes]) -> None:
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1"
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
        if name in content:
            (folder / name).write_bytes(content[name])
    (device,) = gather(str(tmp_path))["rdma"]
    assert len(device["ports"]) == 1
