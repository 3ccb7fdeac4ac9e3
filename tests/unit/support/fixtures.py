# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recordings in tests/unit/fixtures, and what they should be read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1] / "fixtures"


def names(folder: str) -> list[str]:
    return sorted(path.name for path in (ROOT / folder).iterdir())


def data(folder: str, name: str) -> bytes:
    return (ROOT / folder / name).read_bytes()


def text(folder: str, name: str) -> str:
    return data(folder, name).decode("utf-8", "replace")


def expected(name: str) -> dict[str, Any]:
    """Expectations by the name of the recording."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "expected" / f"{name}.yml").read_text(encoding="utf-8"))
    return found
