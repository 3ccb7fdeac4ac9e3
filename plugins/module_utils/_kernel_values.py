# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel parameters and values in sysfs: compared, set, read back. Private to this collection."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._host_questions import read, tuned_profile

# In the order of systemd-sysctl: a file in an earlier directory hides one of the same name in a later one.
SYSCTL_DIRS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
DOTS_AND_SLASHES = str.maketrans("./", "/.")


def sysctl_path(key: str) -> str:
    """The file of a parameter. The first separator decides: net.ipv4.conf.eth0/1.mtu is net/ipv4/conf/eth0.1/mtu."""
    first = re.search(r"[./]", key)
    return "/proc/sys/" + (key if first and first.group() == "/" else key.translate(DOTS_AND_SLASHES))


def current(path: str) -> str:
    """The value in a file; of a list of choices the one in brackets."""
    text = " ".join(read(path).split())
    chosen = re.search(r"\[([^]]+)\]", text)
    return chosen.group(1) if chosen else text


def write(path: str, value: str, check: bool) -> str:
    """Write a value, or in check mode only open the file. Returns the kernel's words if it refuses."""
    try:
        file = os.open(path, os.O_WRONLY | (0 if check else os.O_TRUNC))
        try:
            if not check:
                os.write(file, value.encode())
        finally:
            os.close(file)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def settle(name: str, paths: list[str], value: str, check: bool) -> tuple[list[str], list[str]]:
    """Bring files to a value. Returns lines about what changed and about what was refused."""
    differing = [path for path in paths if current(path) != value]
    if not paths:
        return [], [f"{name}: this kernel has none"]
    if not differing:
        return [], []
    before = current(differing[0])
    for path in differing:
        refused = write(path, value, check)
        if not refused and not check and current(path) != value:
            refused = f"the kernel made it {current(path)}"
        if refused:
            return [], [f"{name} = {value} (is {before}): {refused}"]
    return [f"{name}: {before} -> {value}"], []


def settings(request: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    """All (name, files, value) of this request."""
    paths = {key: sysctl_path(key) for key in request["sysctl"]}
    kernel = [
        (key, [paths[key]] if os.path.exists(paths[key]) else [], " ".join(str(value).split()))
        for key, value in request["sysctl"].items()
    ]
    return kernel + [(item["name"], sorted(glob.glob(item["files"])), item["value"]) for item in request["sysfs"]]


def overrides(request: dict[str, Any]) -> list[str]:
    """Other files that set one of our parameters to another value later at boot, in systemd-sysctl's order."""
    files: dict[str, str] = {}
    for folder in SYSCTL_DIRS:
        for path in glob.glob(f"{folder}/*.conf"):
            files.setdefault(os.path.basename(path), path)
    ours = os.path.basename(request["sysctl_file"])
    wanted = {sysctl_path(key): (key, " ".join(str(value).split())) for key, value in request["sysctl"].items()}
    found = []
    for name in sorted(name for name in files if name > ours):
        for line in read(files[name]).splitlines():
            key, equals, value = line.strip().lstrip("-").partition("=")
            hit = wanted.get(sysctl_path(key.strip())) if equals and key[:1] not in "#;" else None
            if hit and " ".join(value.split()) != hit[1]:
                found.append(f"{hit[0]} = {hit[1]}: {files[name]} makes it {value.strip()} at boot")
    return found


def converge(request: dict[str, Any], check: bool) -> dict[str, Any]:
    """Bring all values to what is wanted; with `check` only say what that would change."""
    changed: list[str] = []
    skipped: list[str] = []
    profile = tuned_profile() if request["sysfs"] else ""
    owned = {item["name"] for item in request["sysfs"]} if profile else set()
    for name, paths, value in settings(request):
        done, refused = settle(name, paths, value, check) if name not in owned else ([], [])
        changed += done
        skipped += refused if name not in owned else [f"{name}: tuned owns it (profile {profile})"]
    return {"changes": changed, "left_out": skipped, "overridden": overrides(request)}
