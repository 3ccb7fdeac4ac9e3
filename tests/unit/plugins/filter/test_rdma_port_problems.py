"""Ports are judged by comparison of the hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.filter.rdma_port_problems import rdma_port_problems

GOOD: dict[str, Any] = {
    "port": 1,
    "state": "active",
    "physical_state": "LinkUp",
    "link_layer": "infiniband",
    "rate_gbps": 400,
    "lid": 7,
}


def host(firmware: str = "28.41.1000", **changes: Any) -> dict[str, Any]:
    return {"rdma": [{"name": "mlx5_0", "board": "MT_0838", "firmware": firmware, "ports": [{**GOOD, **changes}]}]}


def fleet(odd: dict[str, Any], others: int = 3) -> dict[str, dict[str, Any]]:
    return {"odd": odd, **{f"n{i}": host() for i in range(others)}}


def test_a_healthy_fleet_has_nothing_to_say() -> None:
    assert rdma_port_problems(fleet(host())) == {
        name: {"problems": [], "notes": []} for name in ("odd", "n0", "n1", "n2")
    }


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"state": "init", "lid": 65535}, "mlx5_0:1 stays in Initializing: no subnet manager answers on its fabric"),
        ({"state": "initializing"}, "mlx5_0:1 stays in Initializing: no subnet manager answers on its fabric"),
        ({"lid": 65535}, "mlx5_0:1 is Active without a LID: the subnet manager has not assigned one"),
        ({"lid": 0}, "mlx5_0:1 is Active without a LID: the subnet manager has not assigned one"),
        ({"rate_gbps": 100}, "mlx5_0:1 runs at 100 Gb/s, other ports of its kind (MT_0838) at 400"),
        (
            {"state": "down", "physical_state": "Polling"},
            "mlx5_0:1 is down (Polling), on all other hosts it is active",
        ),
    ],
)
def test_the_odd_one_is_named(changes: dict[str, Any], problem: str) -> None:
    result = rdma_port_problems(fleet(host(**changes)))
    assert result.pop("odd")["problems"] == [problem]
    assert all(r["problems"] == [] for r in result.values())


def test_two_hosts_have_no_majority() -> None:
    result = rdma_port_problems(fleet(host(rate_gbps=100), others=1))
    assert [r["problems"] for r in result.values()] == [[], []]
    assert result["odd"]["notes"] == ["mlx5_0:1 runs at 100 Gb/s, others of its kind (MT_0838) at up to 400"]
    assert result["n0"]["notes"] == []
    down = rdma_port_problems(fleet(host(state="down", physical_state="Disabled"), others=1))["odd"]
    assert down == {"problems": [], "notes": ["mlx5_0:1 is down (Disabled): active on 1 of the other hosts"]}


def test_a_port_that_nobody_uses_is_no_problem() -> None:
    down = host(state="down", physical_state="Polling")
    assert rdma_port_problems({"n1": down, "n2": down})["n1"] == {
        "problems": [],
        "notes": ["mlx5_0:1 is down (Polling): not used"],
    }


def test_a_required_port_must_be_active() -> None:
    alone = {"odd": host(state="down", physical_state="Polling")}
    for name in ("mlx5_0", "mlx5_0:1"):
        assert rdma_port_problems(alone, [name])["odd"]["problems"] == [
            "mlx5_0:1 is down (Polling) and is in infiniband_ports_required"
        ]


def test_roce_ports_need_no_lid() -> None:
    assert rdma_port_problems({"odd": host(link_layer="ethernet", lid=0)})["odd"]["problems"] == []


def test_slower_boards_of_another_kind_are_no_problem() -> None:
    storage = {"name": "mlx5_4", "board": "MT_0359", "firmware": "1", "ports": [{**GOOD, "rate_gbps": 100}]}
    both = {"rdma": [*host()["rdma"], storage]}
    assert rdma_port_problems(fleet(both))["odd"]["problems"] == []


def test_firmware_that_differs_is_a_note() -> None:
    result = rdma_port_problems(fleet(host(firmware="28.33.0751")))["odd"]
    assert result["problems"] == []
    assert result["notes"] == ["mlx5_0 has firmware 28.33.0751, other boards of its kind (MT_0838) 28.41.1000"]
