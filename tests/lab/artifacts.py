# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for what users bring along: a CUDA repository package, a source archive of nccl-tests, wheels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from .paths import LabError

NAMES = ("cuda_repo", "nccl_tests", "wheels")


def build(cache: Path, names: Iterable[str]) -> None:
    """Run each builder; they do nothing when their result is there already."""
    for name in names:
        script = Path(__file__).parent / name / "build.py"
        if not script.exists():
            print(f"  {name}: no builder in this checkout, skipped")
            continue
        output = cache / "artifacts" / name
        output.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([sys.executable, str(script), "--out", str(output), "--cache", str(cache)], check=False)
        if done.returncode:
            raise LabError(f"{script} failed ({done.returncode})")
