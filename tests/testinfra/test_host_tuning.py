"""Tuning as the kernel, a service and a login see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Host = Any
VALUES = {"kernel.msgmax": "16384", "net.core.somaxconn": "8193", "net.ipv4.tcp_rmem": "4096\t131072\t8388608"}
LIMITS = ["4096", "2048", "16384"]
ASK = "ulimit -l; ulimit -Sn; ulimit -Hn"


@pytest.fixture(params=["ctl", "n1"])
def host(request: pytest.FixtureRequest, connect: Callable[[str], Host]) -> Host:
    return connect(request.param)


@pytest.mark.parametrize("key", VALUES)
def test_the_kernel_has_the_value(host: Host, key: str) -> None:
    assert host.check_output("sysctl -n %s", key) == VALUES[key]


def test_the_value_comes_back_at_boot(host: Host) -> None:
    host.check_output("sysctl -q -w kernel.msgmax=8192")
    host.check_output("/lib/systemd/systemd-sysctl /etc/sysctl.d/90-gpuops-host-tuning.conf")
    assert host.check_output("sysctl -n kernel.msgmax") == VALUES["kernel.msgmax"]


def test_a_service_has_the_limits(host: Host) -> None:
    asked = host.check_output("systemd-run --wait --pipe --collect --quiet /bin/sh -c %s", ASK)
    assert asked.split() == LIMITS


@pytest.mark.parametrize("user", ["root", "daemon"])
def test_a_login_has_the_limits(host: Host, user: str) -> None:
    assert host.check_output("su -s /bin/sh - %s -c %s", user, ASK).split() == LIMITS


def test_the_hosts_know_each_other_without_a_name_server(host: Host) -> None:
    addresses = {name: host.check_output("getent -s files hosts %s", name).split()[0] for name in ("ctl", "n1")}
    assert addresses[host.check_output("hostname")] in host.check_output("hostname -I").split()


def test_the_clock_of_a_container_is_left_alone(host: Host) -> None:
    assert host.check_output("systemd-detect-virt --container") == "podman"
    assert not host.package("chrony").is_installed
