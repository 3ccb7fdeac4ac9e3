# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA toolkits on a host, found by the version files they bring along."""

from __future__ import annotations

import glob
import json
import os
import re

from ._pci import read

LOCAL = "/usr/local"
DEBIAN = "/usr/lib/cuda"  # the distribution's own package
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")


def _version(path: str) -> str | None:
    """Version as major.minor, from version.json (11 and later) or version.txt (before, and Debian's)."""
    try:
        recorded = json.loads(read(path, "version.json") or "")["cuda"]["version"]
    except (ValueError, TypeError, LookupError):
        recorded = read(path, "version.txt") or ""
    match = _VERSION.search(str(recorded))
    return match.group() if match else None


def cuda_toolkits(local: str = LOCAL, debian: str = DEBIAN) -> list[dict[str, object]]:
    """Toolkits in the order of their versions. The default is what the link ``/usr/local/cuda`` leads to."""
    chosen = os.path.realpath(os.path.join(local, "cuda"))
    folders = [path for path in glob.glob(os.path.join(local, "cuda-*")) if not os.path.islink(path)]
    if os.path.isdir(chosen) and chosen not in map(os.path.realpath, folders):
        folders.append(chosen)
    if os.path.realpath(debian) not in map(os.path.realpath, folders):
        folders.append(debian)
    if not os.path.isdir(chosen):
        chosen = os.path.realpath(debian)
    found = [(version, path) for version, path in ((_version(path), path) for path in folders) if version]
    found.sort(key=lambda item: ([int(part) for part in item[0].split(".")], item[1]))
    return [{"version": version, "path": path, "default": os.path.realpath(path) == chosen} for version, path in found]
