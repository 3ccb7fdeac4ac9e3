"""Software RDMA between two virtual machines: what the facts see, what NCCL is told, and whether data really flows."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Host = Any
Connect = Callable[[str], Host]
Module = Callable[..., dict[str, Any]]
PROJECT = Path(__file__).parents[2]
ADDRESS = {"n1": "10.9.0.1", "n2": "10.9.0.2"}


def apply(tmp_path: Path, role: str, hosts: str, **variables: Any) -> tuple[int, str]:
    """Applies one role; exit status and output on one line."""
    book = tmp_path / "play.yml"
    tasks = [{"ansible.builtin.import_role": {"name": f"gpuops.cluster.{role}"}}]
    book.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "vars": variables, "tasks": tasks}]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventories/lab", str(book)]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def cable(host: Host) -> str:
    return str(host.check_output("ip -o -4 addr show to 10.9.0.0/24").split()[1])


def settings(host: Host) -> dict[str, str]:
    lines = host.file("/etc/nccl.conf").content_string.splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def gid_index(host: Host, address: str) -> str:
    """The entry that the kernel holds for an IPv4 address, asked without this collection."""
    gid = ipaddress.IPv6Address(f"::ffff:{address}").exploded
    found = host.check_output("cd /sys/class/infiniband/rxe0/ports/1/gids && grep -l %s *", gid)
    return str(found).split()[0]


@contextmanager
def server(host: Host, *command: str) -> Iterator[None]:
    """A server that runs on the host meanwhile."""
    host.check_output(f"systemd-run --quiet --collect --unit=perf {' '.join(command)}")
    try:
        yield
    finally:
        host.run("systemctl stop perf.service")


def bandwidth(n1: Host, n2: Host, *more: str) -> float:
    """Gb/s of ib_write_bw from n1 to n2 with the device and the GID index that /etc/nccl.conf has on each of them."""
    ends = []
    for host in (n1, n2):
        conf = settings(host)
        device = conf["NCCL_IB_HCA"].lstrip("=").split(":")[0]
        options = f"-d {device} -x {conf['NCCL_IB_GID_INDEX']} -n 50 -F --report_gbits {' '.join(more)}"
        ends.append(f"ib_write_bw {options}")
    with server(n2, ends[1]):
        # Until the server listens, which the connection manager shows nowhere.
        done = n1.run(f"timeout 240 sh -c 'until {ends[0]} {ADDRESS['n2']}; do sleep 0.5; done'")
    assert done.rc == 0, done.stdout + done.stderr
    row = re.search(r"^\s*65536\s+50\s+([\d.]+)\s+([\d.]+)", done.stdout, re.MULTILINE)
    assert row, done.stdout
    return float(row.group(2))


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_the_facts_are_those_of_the_kernel(name: str, module: Module, connect: Connect) -> None:
    facts = module(name, "gpuops.cluster.fabric_facts")["ansible_facts"]["fabric"]
    host = connect(name)
    (device,) = facts["rdma"]
    (port,) = device["ports"]
    assert (device["name"], port["state"], port["link_layer"]) == ("rxe0", "active", "ethernet")
    assert port["netdevs"] == [cable(host)]
    v2 = {str(ipaddress.IPv6Address(g["gid"]).ipv4_mapped) for g in port["gids"] if g["type"] == "RoCE v2"}
    assert ADDRESS[name] in v2
    (link,) = [link for link in facts["ethernet"] if link["rdma_device"] == "rxe0"]
    assert (link["name"], link["mtu"]) == (cable(host), 9000)


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_nccl_is_told_what_the_kernel_has(name: str, connect: Connect) -> None:
    host = connect(name)
    conf = settings(host)
    assert conf["NCCL_SOCKET_IFNAME"] == f"={cable(host)}"
    assert conf["NCCL_IB_HCA"] == "=rxe0:1"
    assert conf["NCCL_IB_GID_INDEX"] == gid_index(host, ADDRESS[name])


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_the_link_has_what_the_driver_takes(name: str, connect: Connect) -> None:
    host = connect(name)
    link = cable(host)
    assert host.file(f"/sys/class/net/{link}/mtu").content_string.strip() == "9000"
    assert "RX:\t\t128" in host.check_output(f"ethtool -g {link}").partition("Current")[2]


def test_verbs_see_the_device(n1: Host) -> None:
    assert "PORT_ACTIVE" in n1.check_output("ibv_devinfo -d rxe0")
    modules = n1.check_output("lsmod")
    assert "ib_uverbs" in modules and "rdma_ucm" in modules


def test_data_goes_from_one_machine_to_the_other(n1: Host, n2: Host) -> None:
    assert bandwidth(n1, n2) > 0


def test_data_goes_over_the_connection_manager_too(n1: Host, n2: Host) -> None:
    assert bandwidth(n1, n2, "-R") > 0


def test_what_the_driver_refuses_is_in_its_words(n1: Host, module: Module) -> None:
    wanted = {"rdma": True, "pause": {"rx": True}, "roce": {"pfc": [3]}, "ecn": {"3": True}}
    result = module("n1", "gpuops.cluster.ethernet_links", check=True, interfaces=[wanted])
    assert not result["failed"]
    said = "; ".join(result["left_out"])
    link = cable(n1)
    assert f"{link} pause rx on: netlink error: Operation not supported" in said
    assert f"{link} roce pfc 3: Attribute read: Operation not supported" in said
    assert f"{link} ecn 3 on: the driver has no switch for it" in said


def capture(host: Host) -> str:
    """Prints the traffic classes of the RoCE packets that arrive, as long as it is let."""
    code = (
        "import socket,collections;s=socket.socket(socket.AF_PACKET,socket.SOCK_DGRAM,socket.htons(0x0800));"
        "s.bind((%r,0x0800));n=collections.Counter()\n"
        "while True:\n"
        " p=s.recv(64)\n"
        " if p[9]==17 and p[22:24]==(4791).to_bytes(2,'big'):\n"
        "  n[p[1]]+=1\n"
        "  open('/run/classes','w').write(' '.join(map(str,sorted(n))))\n"
    )
    return code % cable(host)


def test_connections_have_the_traffic_class_on_the_wire(n1: Host, n2: Host) -> None:
    """The connection manager's default, which the role has set, in the packets that reach the other machine."""
    assert settings(n1)["NCCL_IB_TC"] == "106"
    n2.check_output("systemd-run --quiet --collect --unit=capture python3 -c %s", capture(n2))
    try:
        assert bandwidth(n1, n2, "-R") > 0
        # Messages of the connection manager itself go without it.
        assert "106" in n2.check_output("cat /run/classes").split()
    finally:
        n2.run("systemctl stop capture.service; rm -f /run/classes")


def test_a_device_that_comes_back_gets_its_traffic_class_from_udev(n2: Host) -> None:
    tos = "/sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_tos"
    assert n2.check_output(f"cat {tos}") == "106"
    n2.check_output(f"rdma link delete rxe0 && rdma link add rxe0 type rxe netdev {cable(n2)} && udevadm settle")
    assert n2.check_output(f"timeout 60 sh -c 'until grep -x 106 {tos}; do sleep 0.5; done'") == "106"


def test_an_address_at_another_index_is_followed(n1: Host, n2: Host, tmp_path: Path) -> None:
    """The kernel gives the index of an address that went to the next one that comes."""
    link, before = cable(n1), gid_index(n1, ADDRESS["n1"])
    ip = f"ip addr add 10.9.8.1/24 dev {link}; ip addr add 10.9.0.1/24 dev {link}"
    n1.check_output(f"ip addr del 10.9.0.1/24 dev {link}; {ip}")
    try:
        gids = "/sys/class/infiniband/rxe0/ports/1/gids/*"
        n1.check_output(f"timeout 60 sh -c 'until grep -q ffff:0a09:0001 {gids}; do sleep 0.2; done'")
        now = gid_index(n1, ADDRESS["n1"])
        assert now != before
        subnet = "10.9.0.0/24"
        wanted = {"infiniband_socket_subnet": subnet, "infiniband_hca_subnets": [subnet], "infiniband_gid_index": True}
        status, out = apply(tmp_path, "infiniband", "n1", **wanted)
        assert status == 0, out
        assert settings(n1)["NCCL_IB_GID_INDEX"] == now
        assert bandwidth(n1, n2) > 0
    finally:
        n1.check_output(f"ip addr del 10.9.8.1/24 dev {link}")
