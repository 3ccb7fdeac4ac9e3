"""MTUs that owners of interfaces state in their own files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_owner as owner


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "sys/class/net/eth1/ifindex", "7\n")
    return tmp_path


def silent(*argv: str) -> tuple[int, str, str]:
    return 1, "", f"{argv[0]} is not installed"


def test_nobody_states_one(root: Path) -> None:
    assert owner.stated_mtu("eth1", silent, str(root)) is None
    put(root, "run/systemd/netif/links/7", "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/a.network\n")
    put(root, "etc/systemd/network/a.network", "[Match]\nName=eth1\n[Network]\nDHCP=yes\n")
    assert owner.stated_mtu("eth1", silent, str(root)) is None


def test_networkd_with_a_drop_in(root: Path) -> None:
    put(root, "run/systemd/netif/links/7", "NETWORK_FILE=/etc/systemd/network/a.network\n")
    put(root, "etc/systemd/network/a.network", "[Link]\nMTUBytes=1500\n")
    assert owner.stated_mtu("eth1", silent, str(root)) == ("systemd-networkd", "/etc/systemd/network/a.network", 1500)
    put(root, "etc/systemd/network/a.network.d/mtu.conf", "[Link]\nMTUBytes = 9K\n")
    assert owner.conflicts({"eth1": 9000}, silent, str(root)) == [
        "eth1: systemd-networkd sets MTU 9216 (/etc/systemd/network/a.network.d/mtu.conf); "
        "set 9000 there, or it returns"
    ]
    assert owner.conflicts({"eth1": 9216}, silent, str(root)) == []


def test_netplan_is_named_and_not_the_file_that_it_writes(root: Path) -> None:
    put(root, "run/systemd/netif/links/7", "NETWORK_FILE=/run/systemd/network/10-netplan-eth1.network\n")
    put(root, "run/systemd/network/10-netplan-eth1.network", "[Link]\nMTUBytes=1500\n")
    assert owner.stated_mtu("eth1", silent, str(root)) == ("netplan", "/etc/netplan", 1500)


def test_network_manager_by_the_connection_in_use(root: Path) -> None:
    put(root, "run/NetworkManager/devices/7", "[device]\nmanaged=true\nconnection-uuid=u-2\n")
    folder = "etc/NetworkManager/system-connections"
    put(root, f"{folder}/a.nmconnection", "[connection]\nuuid=u-1\n[ethernet]\nmtu=1400\n")
    put(root, f"{folder}/b.nmconnection", "[connection]\nuuid=u-2\n[ethernet]\nmtu=1500\n")
    assert owner.stated_mtu("eth1", silent, str(root)) == ("NetworkManager", f"/{folder}/b.nmconnection", 1500)
    put(root, f"{folder}/b.nmconnection", "[connection]\nuuid=u-2\n[ethernet]\nmtu=0\n")
    assert owner.stated_mtu("eth1", silent, str(root)) is None


def test_ifupdown_answers_itself(root: Path) -> None:
    def ifquery(*argv: str) -> tuple[int, str, str]:
        assert argv == ("ifquery", "eth1")
        return 0, "address: 10.0.0.1/24\nmtu: 1500\n", ""

    assert owner.stated_mtu("eth1", ifquery, str(root)) == ("ifupdown", "/etc/network/interfaces", 1500)
