# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets compute mode, power limit, ECC and MIG layout of the GPUs here; --check only compares. Run at each boot.

Settings: /etc/gpuops/gpu_settings.json. Prints what it did as JSON. Exit codes: 0 as wanted, 1 something is not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.gpuops.cluster.plugins.module_utils import _gpu_settings as settings

SETTINGS = Path("/etc/gpuops/gpu_settings.json")


def nvidia_smi(words: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    wanted = json.loads(SETTINGS.read_text(encoding="utf-8"))
    try:
        result = settings.settle(wanted, nvidia_smi, check="--check" in sys.argv[1:])
    except settings.Failed as error:
        result = {"changed": [], "waiting": [], "wrong": [str(error)]}
    print(json.dumps(result, indent=1))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
