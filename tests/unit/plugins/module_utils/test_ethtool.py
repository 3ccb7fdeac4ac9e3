"""Parsers of ethtool and dcb, clamping, and how values are written."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethtool as ethtool

RING = """Ring parameters for ens1f0np0:
Pre-set maximums:
RX:\t\t8192
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t8192
Current hardware settings:
RX:\t\t1024
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t1024
RX Buf Len:\t\tn/a
CQE Size:\t\tn/a
TX Push:\toff
TCP data split:\toff
"""
PAUSE = "Pause parameters for ens1f0np0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\ton\n"
COALESCE = """Coalesce parameters for ens1f0np0:
Adaptive RX: on  TX: off
stats-block-usecs:\tn/a
rx-usecs:\t8
rx-frames:\t128

CQE mode RX: on  TX: off
"""
FEATURES = """Features for ens1f0np0:
rx-checksumming: on
large-receive-offload: off [fixed]
generic-receive-offload: on
\ttx-checksum-ipv4: off [fixed]
rx-gro-hw: off [requested on]
"""
PFC = "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n"


def test_rings_with_missing_and_unknown_fields() -> None:
    now, most = ethtool.parse_limits(RING)
    assert now == {"rx": 1024, "tx": 1024}
    assert most == {"rx": 8192, "tx": 8192}


def test_flags_of_pause_coalescing_and_features() -> None:
    assert ethtool.parse_flags(PAUSE) == {"autoneg": False, "rx": True, "tx": True}
    coalesce = ethtool.parse_flags(COALESCE)
    assert coalesce["adaptive-rx"] is True
    assert coalesce["adaptive-tx"] is False
    assert coalesce["rx-usecs"] == 8
    assert "stats-block-usecs" not in coalesce
    features = ethtool.parse_flags(FEATURES)
    assert features["gro"] is features["generic-receive-offload"] is True
    assert features["lro!"] is True
    assert features["rx-gro-hw"] is False
    assert "rx-gro-hw!" not in features


def test_dcb_with_and_without_entries() -> None:
    assert ethtool.parse_dcb(PFC, "dscp-prio 26:3 48:6 \n") == {"pfc": [3], "dscp": ["26:3", "48:6"]}
    assert ethtool.parse_dcb("", "") == {"pfc": [], "dscp": []}


@pytest.mark.parametrize(
    ("wanted", "left", "note"),
    [
        ({"rx": "max"}, {"rx": 8192}, ""),
        ({"rx": 16384}, {"rx": 8192}, "rx 16384 is above the maximum, 8192 taken"),
        ({"rx": 512}, {"rx": 512}, ""),
        ({"rx-mini": 64}, {}, "the driver reports no rx-mini"),
    ],
)
def test_wanted_numbers_meet_the_driver(wanted: dict[str, Any], left: dict[str, Any], note: str) -> None:
    notes = ethtool.resolve(wanted, *ethtool.parse_limits(RING))
    assert wanted == left
    assert notes == ([note] if note else [])


def test_a_fixed_feature_is_left_out_only_when_it_differs() -> None:
    wanted = {"lro": False, "gro": False}
    assert ethtool.resolve(wanted, ethtool.parse_flags(FEATURES), {}) == []
    assert wanted == {"lro": False, "gro": False}
    wanted = {"lro": True}
    assert ethtool.resolve(wanted, ethtool.parse_flags(FEATURES), {}) == ["the driver fixes lro at off"]
    assert wanted == {}


def test_one_refused_value_does_not_cost_the_others() -> None:
    calls = []

    def run(*argv: str) -> tuple[int, str, str]:
        calls.append(argv)
        return (1, "", "netlink error: Invalid argument\n") if "tx" in argv else (0, "", "")

    error = ethtool.put("ring", "e0", {"rx": 512, "tx": 512}, run)
    assert error == "tx: netlink error: Invalid argument"
    assert ("ethtool", "-G", "e0", "rx", "512") in calls


def test_roce_commands() -> None:
    calls = []

    def run(*argv: str) -> tuple[int, str, str]:
        calls.append(" ".join(argv))
        return 0, "", ""

    assert ethtool.put("roce", "e0", {"pfc": [3], "dscp": ["26:3"]}, run) == ""
    assert calls == [
        "dcb pfc set dev e0 prio-pfc all:off 3:on",
        "dcb app flush dev e0 dscp-prio",
        "dcb app add dev e0 dscp-prio 26:3",
    ]


def test_values_as_users_write_them() -> None:
    written = ("9000", "on", "False", "max", 8, True, [3])
    assert [ethtool.meant(v) for v in written] == [9000, True, False, "max", 8, True, [3]]
