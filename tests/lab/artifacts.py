# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for what users bring along: a CUDA repository package, a source archive of nccl-tests, wheels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from .paths import LabError, locked

NAMES = ("cuda_repo", "nccl_tests", "wheels")


def build(cache: Path, names: Iterable[str]) -> None:
    """Run each builder, for one lab command at a time; they do nothing when their result is there already."""
    with locked(cache / "locks" / "artifacts"):
        for name in names:
            output = cache / "artifacts" / name
            output.mkdir(parents=True, exist_ok=True)
            script = Path(__file__).parent / name / "build.py"
            words = [sys.executable, str(script), "--out", str(output), "--cache", str(cache)]
            if subprocess.run(words, check=False).returncode:
                raise LabError(f"{' '.join(words)} failed")
