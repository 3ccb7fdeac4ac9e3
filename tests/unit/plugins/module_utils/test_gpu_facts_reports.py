# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every recorded XML report is read as its index line says."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._pci import normalise
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures
from ansible_collections.gpuops.cluster.tests.unit.support.replay import codes, facts_of

FOLDER = "nvidia-smi-xml"
EXPECTED = fixtures.expected("nvidia_smi_xml")
FLAGS = {"Enabled": True, "Disabled": False, "N/A": None, "absent": None}


@pytest.fixture(scope="module", params=fixtures.names(FOLDER))
def case(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts from a recording, and what they should be."""
    return facts_of(fixtures.data(FOLDER, request.param)), EXPECTED[request.param]


def each(facts: dict[str, Any], *path: str) -> list[Any]:
    values: list[Any] = facts["devices"]
    for key in path:
        values = [value[key] for value in values]
    return values


def test_every_recording_has_an_expectation() -> None:
    assert sorted(EXPECTED) == fixtures.names(FOLDER)


def test_the_host(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    facts, wanted = case
    assert facts["count"] == len(facts["devices"]) == wanted["count"]
    assert facts["driver"]["version"] == (None if wanted["driver"] == "absent" else wanted["driver"])
    assert facts["driver"]["cuda"] == (None if wanted["cuda"] in {"absent", "Not Found"} else wanted["cuda"])
    assert facts["mixed"] is (len(set(wanted["names"])) > 1)


def test_the_devices(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    facts, wanted = case
    assert each(facts, "index") == list(range(wanted["count"]))
    assert each(facts, "name") == wanted["names"]
    if "memory" not in wanted:
        return  # of a cut report the index tells no more
    assert each(facts, "memory_mib") == wanted["memory"]
    assert each(facts, "mig", "enabled") == [FLAGS[word] for word in wanted["mig"]]
    assert sum(map(len, each(facts, "mig", "devices"))) == wanted.get("mig_devices", 0)
    assert each(facts, "ecc", "enabled") == [FLAGS[word] for word in wanted["ecc"]]
    assert each(facts, "architecture") == [None if word == "absent" else word for word in wanted["architecture"]]
    assert [rows is not None for rows in each(facts, "remapped_rows")] == [
        word == "with values" for word in wanted["remapped"]
    ]
    addresses = [normalise(address) for address in wanted["pci"]]
    assert each(facts, "pci")[:: max(wanted["count"] - 1, 1)] == addresses


def test_the_problems(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    facts, wanted = case
    assert codes(facts) == [tuple(problem) for problem in wanted["problems"]]
    assert facts["state"] == ("degraded" if wanted["problems"] else "ok")
    assert bool(facts["reason"]) is bool(wanted["problems"])
    for device in facts["devices"]:
        assert device["problems"] == [code for code, index in codes(facts) if index == device["index"]]


def test_figures_of_chosen_recordings() -> None:
    """Values beyond the index, read from the files by hand."""
    hopper = facts_of(fixtures.data(FOLDER, "h100-sxm5-8x-driver570.86.xml"))["devices"][1]
    assert hopper == {
        "index": 1,
        "minor": 1,
        "uuid": "GPU-f14c60d8-8692-424a-92ab-a6e5df154ee4",
        "name": "NVIDIA H100 80GB HBM3",
        "architecture": "Hopper",
        "pci": "0000:05:00.0",
        "memory_mib": 81559,
        "numa_node": None,
        "cpus": None,
        "persistence": False,
        "mig": {"enabled": False, "pending": False, "devices": []},
        "ecc": {
            "enabled": True,
            "uncorrectable_volatile": 0,
            "uncorrectable_aggregate": 0,
            "correctable_volatile": 0,
            "correctable_aggregate": 0,
        },
        "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": False, "failed": False},
        "retired_pages": None,
        "pcie": {"generation": 4, "generation_max": 4, "width": 16, "width_max": 16},
        "power_limit_w": 700.0,
        "temperature_c": 32,
        "throttle_reasons": ["gpu_idle"],
        "problems": [],
    }
    kepler = facts_of(fixtures.data(FOLDER, "k80-4x-driver430.26-cuda-not-found-retired-page.xml"))["devices"]
    assert [device["minor"] for device in kepler] == [1, 2, 3, 0]
    assert kepler[0]["ecc"]["correctable_aggregate"] == 7
    assert kepler[0]["retired_pages"] == {"single_bit": 1, "double_bit": 1, "pending": False}
    mig = facts_of(fixtures.data(FOLDER, "a100-sxm4-40gb-1x-driver510.47-mig-2.xml"))["devices"][0]["mig"]
    assert mig["devices"][1] == {
        "uuid": None,
        "gpu_instance": 2,
        "compute_instance": 0,
        "profile": None,
        "memory_mib": 19968,
    }
    guest = facts_of(fixtures.data(FOLDER, "grid-p4-1q-vgpu-driver513.46-windows.xml"))["devices"][0]
    assert guest["minor"] is None and guest["persistence"] is None
    assert guest["pcie"] == dict.fromkeys(("generation", "generation_max", "width", "width_max"))
    failed = facts_of(fixtures.data(FOLDER, "gb200-2x-driver580.65-remap-failure-mock.xml"))["devices"][0]
    assert failed["remapped_rows"] == {"correctable": 0, "uncorrectable": 1, "pending": False, "failed": True}
    assert failed["ecc"]["uncorrectable_volatile"] == 5 and failed["ecc"]["uncorrectable_aggregate"] == 8
