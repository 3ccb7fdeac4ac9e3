# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a file of metrics for node_exporter's textfile collector. Private to this collection."""

from __future__ import annotations

import os
import tempfile


def write(path: str, text: str) -> None:
    """In one step: node_exporter must never read half a file."""
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpuops")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)
