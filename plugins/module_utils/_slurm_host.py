# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel says of a host that Slurm minds: cgroups, file systems, processors. Private to the collection."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._host_questions import read


def cgroup() -> dict[str, Any]:
    """Hierarchy as Slurm sees it: v2 wants every controller in the unified tree, v1 wants them outside of it."""
    v1, v2, places = False, False, []
    for line in read("/proc/self/mounts").splitlines():
        _device, path, kind, options = line.split(" ")[:4]
        if kind == "cgroup" and {"memory", "devices", "cpuset", "freezer"} & set(options.split(",")):
            v1 = True
            places.append(path)
        elif kind == "cgroup2" and path == "/sys/fs/cgroup":
            v2 = True
            places.append(path)
    hierarchy = "v1" if v1 else "v2" if v2 else "none"
    return {"hierarchy": hierarchy, "writable": bool(places) and all(os.access(path, os.W_OK) for path in places)}


def directory(path: str) -> dict[str, str]:
    """File system that a directory lies on, or will lie on, with its options; and its owner (empty without one)."""
    best, kind, options = "", "", ""
    for line in read("/proc/self/mounts").splitlines():
        _device, place, *these = line.split(" ")[:4]
        if f"{path}/".startswith(place.rstrip("/") + "/") and len(place) >= len(best):
            best, (kind, options) = place, these
    owner = ""
    with contextlib.suppress(OSError, KeyError):
        owner = pwd.getpwuid(os.stat(path).st_uid).pw_name
    return {"filesystem": kind, "options": options, "owner": owner}


def placement() -> dict[int, tuple[int, int]]:
    """Each CPU's (package, core) as the kernel numbers them."""
    found = {}
    for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology"):
        package, core = read(f"{path}/physical_package_id").strip(), read(f"{path}/core_id").strip()
        if package.lstrip("-").isdigit() and core.isdigit():
            found[int(re.sub(r"\D", "", path.split("/")[-2]))] = (int(package), int(core))
    return found
