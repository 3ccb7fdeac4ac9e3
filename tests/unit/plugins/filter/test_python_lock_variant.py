# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA variant of an environment is taken for some hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.filter.python_lock import python_lock_variant

DIGEST = f"--hash=sha256:{'0' * 64}"
LOCKS = {
    "cpu": f"torch==2.9.1+cpu {DIGEST}\n",
    "cu126": f"torch==2.9.1+cu126 {DIGEST}\n",
    "cu128": f"torch==2.9.1+cu128 {DIGEST}\n",
    "cu130": f"torch==2.9.1+cu130 {DIGEST}\n",
}


def host(driver: str = "", name: str = "NVIDIA H100 80GB HBM3", architecture: str = "Hopper") -> dict[str, Any]:
    devices = [{"name": name, "architecture": architecture}] if driver else []
    state = "ok" if driver else "no_gpu"
    return {"state": state, "count": len(devices), "driver": {"version": driver or None}, "devices": devices}


@pytest.mark.parametrize(
    ("hosts", "variant"),
    [
        ({"n1": host("580.95.05")}, "cu130"),
        ({"n1": host("550.54.15")}, "cu128"),
        ({"n1": host("580.95.05"), "n2": host("550.54.15")}, "cu128"),
        ({"n1": host("580.95.05", "Tesla P100-PCIE-16GB", "Pascal")}, "cu126"),
        ({"n1": host("580.95.05", "NVIDIA B200", "Blackwell")}, "cu130"),
        ({"n1": host(), "n2": host()}, "cpu"),
    ],
)
def test_the_newest_that_fits_all_hosts(hosts: dict[str, Any], variant: str) -> None:
    assert python_lock_variant(LOCKS, hosts)["variant"] == variant


def test_nothing_is_chosen_until_the_driver_answers() -> None:
    bare = {"state": "no_driver", "pci_count": 8, "count": 0, "driver": {"version": None}, "devices": []}
    found = python_lock_variant(LOCKS, {"n1": host("580.95.05"), "n2": bare})
    assert (found["variant"], found["waits"]) == ("", ["n2"])


def test_what_does_not_fit_is_named_with_host_and_reason() -> None:
    found = python_lock_variant({"cu130": LOCKS["cu130"]}, {"n1": host("580.95.05"), "n2": host("550.54.15")})
    assert found["variant"] == ""
    assert "cu130: n2: driver 550.54.15 does not run PyTorch 2.9.1 for CUDA 13.0" in found["refused"]
    mixed = python_lock_variant(LOCKS, {"n1": host("580.95.05"), "n2": host()})
    assert mixed["variant"] == ""
    assert "cu130: n2: no GPU answers (no_gpu)" in mixed["refused"]
    assert "cpu: n1: it is for CPUs" in mixed["refused"]
