# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet for tests of the audit: the registered results of audit_info, without any host."""

from __future__ import annotations

from typing import Any

VERSIONS = {
    "os": "Ubuntu 22.04.5 LTS",
    "kernel": "5.15.0-125-generic",
    "gpu_boards": "8 x 10de:2330",
    "gpus": "8 x NVIDIA H100 80GB HBM3",
    "gpu_settings": "ECC on, MIG off, persistence on, 700 W",
    "driver_installed": "550.54.15",
    "driver_loaded": "550.54.15 open",
    "fabric_manager": "550.54.15",
    "cuda_toolkits": "12.4 (default)",
    "nccl": "2.21.5-1+cuda12.4",
    "torch": "torch: 2.5.1+cu124, lock 1f2e3d4c5b6a",
    "torch_nccl": "torch: 2.21.5",
    "fabric_firmware": "8 x MT_0000000838 28.39.1002",
    "network": "8 x InfiniBand 400 Gbit/s",
    "slurm": "23.11.4",
}


def look(*problems: tuple[str, str, str], **versions: Any) -> dict[str, Any]:
    """What audit_info returned: a healthy host, but for these problems (code, device, detail) and versions."""
    keys = ("code", "device", "detail")
    return {
        "changed": False,
        "audit": {
            "versions": {**VERSIONS, **versions},
            "problems": [dict(zip(keys, problem)) for problem in problems],
        },
    }


def without_gpus(**versions: Any) -> dict[str, Any]:
    shown = {key: VERSIONS[key] if key in {"os", "kernel", "slurm"} else "none" for key in VERSIONS}
    return look(**{**shown, **versions})
