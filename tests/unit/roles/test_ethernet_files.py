"""The program that the role ethernet sends to the hosts: the path to the next one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILES = Path(__file__).parents[3] / "roles/ethernet/files"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FILES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


path_check = load("path_check")


def link(name: str, mtu: int, *addresses: str) -> dict[str, Any]:
    return {"name": name, "mtu": mtu, "addresses": list(addresses)}


def answers(largest: int) -> Any:
    """A ping that passes packets of up to so many bytes."""
    return lambda name, address, size: (size + 28 <= largest, "" if size + 28 <= largest else "no answer")


def test_a_mismatch_that_packets_survive_is_said_by_the_larger_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between virtual machines, whose interfaces take frames above their MTU."""
    monkeypatch.setattr(path_check, "ping", answers(9000))
    large, small = link("eth1", 9000, "10.9.0.1/24"), link("ens5", 1500, "10.9.0.2/24")
    result = path_check.check("n2", [large], [small])
    assert result["failed"] == []
    where = "from eth1 (MTU 9000) to n2 10.9.0.2 on ens5 (MTU 1500)"
    assert result["skipped"] == [f"the MTU differs {where}; full-size packets pass, RDMA wants equal ones"]
    assert path_check.check("n1", [small], [large])["skipped"] == []


def test_a_mismatch_names_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_check, "ping", answers(1500))
    result = path_check.check("n2", [link("eth1", 9000, "10.9.0.1/24")], [link("ens5", 1500, "10.9.0.2/24")])
    assert result["failed"] == [
        "packets of 9000 bytes do not pass from eth1 (MTU 9000) to n2 10.9.0.2 on ens5 (MTU 1500), "
        "small ones do: no answer"
    ]


def test_a_host_that_answers_no_ping_at_all_is_no_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_check, "ping", answers(0))
    result = path_check.check("n2", [link("eth1", 1500, "10.9.0.1/24")], [link("eth1", 1500, "10.9.0.2/24")])
    assert result["failed"] == []
    assert result["skipped"] == ["no ping from eth1 (MTU 1500) to n2 10.9.0.2 on eth1 (MTU 1500): no answer"]


def test_the_same_address_on_both_hosts_is_no_path() -> None:
    docker = link("docker0", 1500, "172.17.0.1/16")
    assert path_check.check("n2", [docker], [docker]) == {
        "tried": 0,
        "failed": [],
        "skipped": ["no network in common with n2, so no full-size packet was sent"],
    }


def test_rails_of_one_network_are_paired_by_name() -> None:
    own = [link("eth1", 9000, "10.0.0.11/16"), link("eth2", 9000, "10.0.0.12/16")]
    theirs = [link("eth1", 9000, "10.0.0.21/16"), link("eth2", 9000, "10.0.0.22/16", "fd00::2/64")]
    assert [(p[0]["name"], p[1]) for p in path_check.meeting_points(own, theirs)] == [
        ("eth1", "10.0.0.21"),
        ("eth2", "10.0.0.22"),
    ]
