"""Consent, order and matching of ethernet_links on synthetic sysfs trees; test_ethernet_netns has the kernel's part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_links as engine
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_look as look


class Machine:
    """A sysfs tree and the commands that change it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.net = root / "class/net"
        self.addresses: list[dict[str, Any]] = []
        self.systemd = ""

    def add(
        self, name: str, mac: str = "02:00:00:00:00:01", carrier: str = "1", driver: str = "", mtu: int = 1500
    ) -> None:
        base = self.net / name
        base.mkdir(parents=True)
        for key, value in {"address": mac, "type": "1", "carrier": carrier, "mtu": str(mtu)}.items():
            (base / key).write_text(value + "\n")
        if driver:
            device = self.root / "devices" / f"0000:0{len(list(self.net.iterdir()))}:00.0"
            (device / "infiniband").mkdir(parents=True)
            (self.root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(self.root / "drivers" / driver)
            (base / "device").symlink_to(device)

    def put_on(self, upper: str, lower: str) -> None:
        (self.net / upper / f"lower_{lower}").symlink_to(self.net / lower)

    def mtu(self, name: str) -> int:
        return int((self.net / name / "mtu").read_text())

    def run(self, *argv: str) -> tuple[int, str, str]:
        if argv[:3] == ("ip", "-j", "addr"):
            return 0, json.dumps(self.addresses), ""
        if argv[:3] == ("ip", "link", "set"):
            (self.net / argv[4] / "mtu").write_text(argv[6])
        if argv[0] == "systemd-run":
            return (1, "", self.systemd) if self.systemd else (0, "", "")
        if argv[0] == "ethtool":
            return 1, "", "netlink error: Operation not supported\n"
        return 0, "", ""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(engine, "run", made.run)
    monkeypatch.setattr(look, "run", made.run)
    monkeypatch.setattr(engine, "Links", lambda: look.Links(str(tmp_path)))
    monkeypatch.setattr(engine, "RESTORE_FILE", tmp_path / "run/restore.json")
    monkeypatch.setattr(look, "connection_address", lambda proc="/proc": "10.0.0.1")
    return made


def converge(*interfaces: dict[str, Any], apply: bool = True, **more: Any) -> dict[str, Any]:
    config = {"interfaces": list(interfaces), "rollback_after": 60, "program": "/p", **more}
    return engine.converge(config, apply=apply)


def test_a_link_in_use_waits_for_consent(machine: Machine) -> None:
    machine.add("eth1")
    result = converge({"name": "eth1", "mtu": 9000})
    assert machine.mtu("eth1") == 1500
    assert result["changed"] is False
    assert result["waits"] == ["eth1 mtu 9000: restarts the link: set ethernet_link_restart_allowed: true, or reboot"]
    assert result["left_out"] == []


def test_a_link_without_carrier_needs_no_consent(machine: Machine) -> None:
    machine.add("eth1", carrier="0")
    assert converge({"name": "eth1", "mtu": 9000}, apply=False)["changed"] is True
    assert machine.mtu("eth1") == 1500
    assert converge({"name": "eth1", "mtu": 9000})["changed"] is True
    assert machine.mtu("eth1") == 9000
    assert converge({"name": "eth1", "mtu": 9000})["changed"] is False


def test_the_connection_and_what_it_sits_on_are_left_alone(machine: Machine) -> None:
    machine.add("eth0", mac="02:00:00:00:00:0a")
    machine.add("vlan5", mac="02:00:00:00:00:0b")
    machine.put_on("vlan5", "eth0")
    machine.addresses = [
        {"ifname": "vlan5", "mtu": 1500, "addr_info": [{"local": "10.0.0.1", "prefixlen": 24, "scope": "global"}]}
    ]
    result = converge({"name": "*", "mtu": 9000}, allow_restart=True)
    assert result["connection"] == ["vlan5", "eth0"]
    assert result["protected"] == ["02:00:00:00:00:0a", "02:00:00:00:00:0b"]
    assert machine.mtu("eth0") == machine.mtu("vlan5") == 1500
    assert "set ethernet_change_connection_link: true" in result["left_out"][0]


def test_the_connection_changes_only_under_a_rollback(machine: Machine) -> None:
    machine.add("eth0")
    machine.addresses = [
        {"ifname": "eth0", "mtu": 1500, "addr_info": [{"local": "10.0.0.1", "prefixlen": 24, "scope": "global"}]}
    ]
    machine.systemd = "Failed to connect to bus"
    result = converge({"name": "eth0", "mtu": 9000}, allow_restart=True, allow_connection=True)
    assert machine.mtu("eth0") == 1500
    assert result["left_out"] == ["eth0 mtu 9000: no rollback is possible: Failed to connect to bus"]

    machine.systemd = ""
    result = converge({"name": "eth0", "mtu": 9000}, allow_restart=True, allow_connection=True)
    assert result["rollback_armed"] is True
    assert machine.mtu("eth0") == 9000
    engine.restore()
    assert machine.mtu("eth0") == 1500
    assert engine.confirm()["rolled_back"] is True


def test_confirming_in_time_keeps_the_change(machine: Machine) -> None:
    machine.add("eth0")
    machine.addresses = [
        {"ifname": "eth0", "mtu": 1500, "addr_info": [{"local": "10.0.0.1", "prefixlen": 24, "scope": "global"}]}
    ]
    converge({"name": "eth0", "mtu": 9000}, allow_restart=True, allow_connection=True)
    assert engine.confirm()["rolled_back"] is False
    assert machine.mtu("eth0") == 9000


def test_what_lies_below_gets_its_mtu_first(machine: Machine) -> None:
    machine.add("eth1")
    machine.add("eth2", mtu=9216)
    machine.add("vlan7")
    machine.put_on("vlan7", "eth1")
    machine.put_on("vlan7", "eth2")
    result = converge({"name": "vlan7", "mtu": 9000}, allow_restart=True)
    assert [c["link"] for c in result["changes"]] == ["eth1", "vlan7"]
    assert machine.mtu("eth2") == 9216


def test_members_of_a_bond_are_made_equal(machine: Machine) -> None:
    machine.add("bond0", mtu=9000)
    (machine.net / "bond0/bonding").mkdir()
    machine.add("eth1", mtu=9000)
    machine.add("eth2")
    machine.put_on("bond0", "eth1")
    machine.put_on("bond0", "eth2")
    result = converge({"name": "bond0", "mtu": 9000}, allow_restart=True)
    assert [c["link"] for c in result["changes"]] == ["eth2"]


def test_interfaces_are_found_by_what_does_not_change(machine: Machine) -> None:
    machine.add("ens1f0np0", mac="B8:3F:D2:00:00:01", driver="mlx5_core", carrier="0")
    machine.add("eno1", mac="02:00:00:00:00:02")
    (machine.net / "ib0").mkdir()
    (machine.net / "ib0/type").write_text("32\n")
    for matcher in ({"mac": "b8:3f:d2:00:00:01"}, {"driver": "mlx5_core"}, {"rdma": True}, {"pci": "0000:01:00.0"}):
        found = converge({**matcher, "mtu": 4200}, apply=False)["changes"]
        assert [c["link"] for c in found] == ["ens1f0np0"], matcher
    assert converge({"name": "enp6s0f0", "mtu": 9000})["left_out"] == ["no interface with name enp6s0f0"]


def test_two_ways_to_name_an_interface_are_refused(machine: Machine) -> None:
    with pytest.raises(look.BadRequest, match="named by one of name, mac"):
        converge({"name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 9000})


def test_roce_points_out_a_small_mtu(machine: Machine) -> None:
    machine.add("eth1", driver="mlx5_core")
    result = converge({"rdma": True, "roce": {"pfc": [3]}})
    assert "eth1: MTU 1500 limits RDMA packets to 1024 bytes, 4200 allows 4096" in result["left_out"]


def test_the_connection_is_found_in_the_environment_of_a_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for pid, parent, environ in ((30, 20, b"A=1\0"), (20, 1, b"B=2\0SSH_CONNECTION=192.0.2.1 5000 192.0.2.7 22\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(environ)
        (tmp_path / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    monkeypatch.setattr("os.getpid", lambda: 30)
    assert look.connection_address(str(tmp_path)) == "192.0.2.7"
    (tmp_path / "20/environ").write_bytes(b"")
    assert look.connection_address(str(tmp_path)) == ""
