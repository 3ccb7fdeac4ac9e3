"""Links as the kernel has them after the role; a link that comes back and a host that is lost, without Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
Connect = Callable[[str], Any]


def ansible(program: str, *words: str) -> str:
    """Runs a program of Ansible on the lab; returns what it says, whatever its result, on one line."""
    command = [str(Path(sys.executable).with_name(program)), "-i", "inventories/lab", *words]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    return " ".join((done.stdout + done.stderr).split())


def mtu(host: Any, link: str) -> int:
    return int(host.file(f"/sys/class/net/{link}/mtu").content_string)


def segmentation(host: Any, link: str) -> str:
    return str(host.check_output(f"ethtool -k {link} | grep ^tcp-segmentation-offload:")).split()[1]


def test_a_link_with_consent_has_everything(n1: Any) -> None:
    assert mtu(n1, "x1") == 9000
    assert segmentation(n1, "x1") == "off"
    assert n1.check_output("ethtool -l x1").count("RX:\t\t2") == 2, "channels at their maximum"


def test_a_link_without_consent_has_what_restarts_nothing(n2: Any) -> None:
    assert mtu(n2, "x1") == 1500
    assert segmentation(n2, "x1") == "off"


def test_the_link_of_the_connection_is_as_it_was(connect: Connect) -> None:
    for name in ("n1", "n2"):
        host = connect(name)
        assert segmentation(host, "eth0") == "on"
        protected = json.loads(host.file("/etc/gpuops/ethernet.json").content_string)["protected"]
        assert protected == [host.file("/sys/class/net/eth0/address").content_string.strip()]


def test_tcp_parameters_are_in_the_kernel(n1: Any) -> None:
    assert n1.check_output("sysctl -n net.ipv4.tcp_rmem").split() == ["4096", "131072", "67108864"]
    assert n1.check_output("sysctl -n net.ipv4.tcp_mtu_probing") == "1"


def test_a_link_that_comes_back_gets_its_settings_from_udev(n2: Any) -> None:
    n2.check_output("ip link del x1 && ip link add x1 type veth peer name x2 && udevadm settle")
    assert mtu(n2, "x1") == 9000, "no carrier yet, so nobody is disturbed"
    assert segmentation(n2, "x1") == "off"


def test_an_owner_that_states_another_mtu_is_named(n1: Any) -> None:
    assert n1.service("systemd-networkd").is_running
    arguments = json.dumps({"interfaces": [{"name": "x1", "mtu": 9000}]})
    out = ansible("ansible", "n1", "--check", "-m", "gpuops.cluster.ethernet_links", "-a", arguments)
    assert "SKIPPED" not in out
    assert "x1: systemd-networkd sets MTU 1500 (/etc/systemd/network/x1.network); set 9000 there, or it returns" in out


def test_a_lost_host_gets_its_link_back(n1: Any) -> None:
    arguments = {
        "interfaces": [{"name": "eth0", "mtu": 1400}],
        "allow_restart": True,
        "allow_connection": True,
        "rollback_after": 15,
    }
    out = ansible("ansible", "n1", "-m", "gpuops.cluster.ethernet_links", "-a", json.dumps(arguments))
    assert '"rollback_armed": true' in out
    assert mtu(n1, "eth0") == 1400
    n1.check_output("timeout 120 sh -c 'while [ -e /run/gpuops/ethernet-restore.json ]; do sleep 0.2; done'")
    assert mtu(n1, "eth0") == 1500


def test_a_run_that_cuts_its_own_host_off_says_so_and_leaves_it_as_it_was(n1: Any, tmp_path: Path) -> None:
    """The whole role, with consent: as soon as the MTU has changed, the host no longer finds the way to us."""
    book = tmp_path / "play.yml"
    role = {"ansible.builtin.import_role": {"name": "gpuops.cluster.ethernet"}}
    wanted = {
        "ethernet_interfaces": [{"name": "eth0", "mtu": 1400}],
        "ethernet_link_restart_allowed": True,
        "ethernet_change_connection_link": True,
        "ethernet_rollback_seconds": 6,
    }
    book.write_text(json.dumps([{"hosts": "n1", "gather_facts": False, "vars": wanted, "tasks": [role]}]))
    kept = n1.file("/etc/gpuops/ethernet.json").content_string
    us = n1.check_output("echo $SSH_CONNECTION").split()[0]
    cut = (
        "mtu() { cat /sys/class/net/eth0/mtu; }; until [ $(mtu) = 1400 ]; do sleep 0.05; done; "
        f"ip route add blackhole {us}; until [ $(mtu) = 1500 ]; do sleep 0.05; done; ip route del blackhole {us}"
    )
    n1.check_output("systemd-run --quiet --collect --unit=cut sh -c %s", cut)
    try:
        out = ansible("ansible-playbook", str(book))
    finally:
        n1.run("systemctl stop cut.service")
    assert "n1: did not answer for 6 s after the change of eth0, which carries the Ansible connection; " in out
    assert "the change was undone (mtu)" in out
    assert mtu(n1, "eth0") == 1500
    assert n1.file("/etc/gpuops/ethernet.json").content_string == kept, "it must not come back at the next boot"


def test_a_mismatch_names_both_hosts(n1: Any) -> None:
    n1.check_output("ip link set eth0 mtu 1400")
    try:
        out = ansible("ansible-playbook", "molecule/ethernet/converge.yml")
    finally:
        n1.check_output("ip link set eth0 mtu 1500")
    assert "n2: packets of 1500 bytes do not pass from eth0 (MTU 1500) to n1 " in out
    assert "on eth0 (MTU 1400), small ones do" in out


def test_settings_that_nobody_wants_any_more_leave_nothing_for_the_next_boot(n2: Any, tmp_path: Path) -> None:
    book = tmp_path / "play.yml"
    role = {"ansible.builtin.import_role": {"name": "gpuops.cluster.ethernet"}}
    book.write_text(json.dumps([{"hosts": "n2", "gather_facts": False, "tasks": [role]}]))
    kept = ["/etc/gpuops/ethernet.json", "/etc/udev/rules.d/90-gpuops-ethernet.rules"]
    assert all(n2.file(path).exists for path in kept)
    out = ansible("ansible-playbook", str(book))
    assert "failed=0" in out, out
    assert not any(n2.file(path).exists for path in kept)
    assert "changed=0" in ansible("ansible-playbook", str(book))
