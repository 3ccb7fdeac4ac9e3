# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether nvidia_driver has anything to change: one thing at a time that is not as it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_differences as nvidia

RELEASE, VERSION = "535.309.01", "535.309.01-0+deb12u1"
PIN = "/etc/apt/preferences.d/50-gpuops-nvidia-driver"
NONE = {"compute_mode": "", "power_limit_w": 0.0, "ecc": "", "mig_layout": {}}


def host() -> dict[str, Any]:
    """A host with a kernel of its own where nothing is to be done, as the arguments of differences()."""
    names = ("libcuda1", "nvidia-kernel-dkms", "nvidia-alternative")
    headers = ["linux-headers-6.1.0-57-amd64", "linux-headers-amd64"]
    return {
        "settings": {
            "kernel_modules": True,
            "pinned": True,
            "reboot_allowed": False,
            "gpu_settings": {**NONE, "ecc": "disabled"},
        },
        "plan": {
            "resolved": True,
            "release": RELEASE,
            "packages": dict.fromkeys(names[:2], VERSION),
            "installed": {**dict.fromkeys(names, VERSION), **dict.fromkeys(headers, "6.1")},
            "headers": headers,
            "nouveau": False,
            "fabric": True,
            "gpu_settings": True,
        },
        "seen": {
            "dpkg": [*(f"hi |{name}|{VERSION}" for name in names), *(f"ii |{name}|6.1" for name in headers)],
            "files": {PIN: "0644 aa"},
            "units": {
                name: {"enabled": True, "active": True}
                for name in ("nvidia-persistenced", "nvidia-fabricmanager", "gpuops-gpu-settings")
            },
            "dkms": f"nvidia-current/{RELEASE}, 6.1.0-57-amd64, x86_64: installed\n",
            "gpu_settings": {"changed": [], "wrong": [], "waiting": ["GPU 0: ECC is Enabled, Disabled after a reboot"]},
        },
        "wanted": {PIN: "0644 aa"},
        "gpu": {"state": "ok", "pci_count": 8, "driver": {"version": RELEASE, "loaded": RELEASE}},
    }


def at(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(arguments: dict[str, Any]) -> None:
        for key in path[:-1]:
            arguments = arguments[key]
        arguments[path[-1]] = value

    return change


def test_nothing_differs() -> None:
    assert nvidia.differences(**host()) == []


def test_on_a_host_whose_kernel_is_another_s_modules_do_not_count() -> None:
    arguments = host()
    arguments["settings"]["kernel_modules"] = False
    arguments["plan"].update(headers=["linux-headers-6.1.0-57-amd64"], nouveau=True)
    arguments["seen"].update(dkms="", units={"gpuops-gpu-settings": {"enabled": True, "active": False}})
    arguments["gpu"]["driver"]["loaded"] = "535.261.03"
    assert nvidia.differences(**arguments) == []
    arguments["gpu"]["state"] = "driver_mismatch"
    assert nvidia.differences(**arguments) == ["the driver does not answer (driver_mismatch)"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (at("plan", "resolved", value=False), "apt does not know its packages"),
        (at("plan", "installed", "libcuda1", value="535.261.03-1"), f"libcuda1 {VERSION}"),
        (
            at("plan", "headers", value=["linux-headers-6.1.0-60-amd64"]),
            "linux-headers-6.1.0-60-amd64 is not installed",
        ),
        (at("plan", "nouveau", value=True), "nouveau is loaded"),
        (at("seen", "files", PIN, value="0600 aa"), PIN),
        (at("seen", "files", value={}), PIN),
        (at("seen", "dpkg", value=[f"ii |nvidia-alternative|1:{VERSION}"]), "nvidia-alternative is not held"),
        (at("seen", "dpkg", value=["it |libcuda1|1.0"]), "libcuda1 is not held"),
        (at("settings", "pinned", value=False), "libcuda1 is held"),
        (at("seen", "dkms", value=""), "dkms has built no module for 6.1.0-57-amd64"),
        (
            at("seen", "dkms", value=f"nvidia-current/{RELEASE}, 6.1.0-50-amd64, x86_64: installed"),
            "dkms has built no module for 6.1.0-57-amd64",
        ),
        (at("gpu", "driver", "loaded", value=None), "the loaded module is none"),
        (at("gpu", "driver", "loaded", value="535.261.03"), "the loaded module is 535.261.03"),
        (at("seen", "units", "nvidia-fabricmanager", "active", value=False), "nvidia-fabricmanager is not enabled"),
        (at("seen", "units", "nvidia-persistenced", "enabled", value=False), "nvidia-persistenced is not enabled"),
        (at("seen", "units", value={}), "gpuops-gpu-settings is not enabled"),
        (at("seen", "gpu_settings", "changed", value=["GPU 0: ECC"]), "GPU 0: ECC"),
        (at("seen", "gpu_settings", "wrong", value=["nvidia-smi: no"]), "nvidia-smi: no"),
        (at("settings", "reboot_allowed", value=True), "GPU 0: ECC is Enabled"),
        (at("settings", "gpu_settings", value=NONE), "GPUs are set at each boot"),
    ],
)
def test_each_difference_is_seen(change: Callable[[dict[str, Any]], None], said: str) -> None:
    arguments = host()
    change(arguments)
    assert any(line.startswith(said) for line in nvidia.differences(**arguments)), nvidia.differences(**arguments)


def test_without_a_gpu_nothing_has_to_be_loaded_or_to_run() -> None:
    arguments = host()
    arguments["gpu"] = {"state": "no_gpu", "pci_count": 0, "driver": {"version": None, "loaded": None}}
    arguments["seen"].update(gpu_settings=None)
    arguments["seen"]["units"]["nvidia-persistenced"]["active"] = False
    assert nvidia.differences(**arguments) == []


def test_packages_of_others_are_not_held() -> None:
    lines = [
        f"ii |libcuda1|{VERSION}",
        "ii |nvidia-container-toolkit|1.17-1",
        "ii |linux-headers-amd64|6.1",
        "un |nvidia-tesla|",
    ]
    assert nvidia.marks(lines, host()["plan"], pinned=True) == ["libcuda1"]
