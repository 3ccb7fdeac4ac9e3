# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's deb local repository as a file: what its name says, and what is wrong with it. Private to this collection.

`settings` are the variables of the role cuda_toolkit without their prefix.
"""

from __future__ import annotations

import re
from typing import Any, Optional

FILE = re.compile(r"cuda-repo-([a-z]+\d+)-(\d+)-(\d+)-local_(\d+\.\d+\.\d+)-([\d.]+)-1_([a-z0-9]+)\.deb")


def parsed(settings: dict[str, Any]) -> Optional[re.Match[str]]:
    """Distribution, major, minor, release, driver's version and machine, from the file's name."""
    return FILE.fullmatch(settings["local_repository"].rsplit("/", 1)[-1])


def name_problems(settings: dict[str, Any], distro: str, machine: str) -> list[str]:
    """What is wrong with the variables of the source local_repository."""
    problems = []
    name, match = settings["local_repository"].rsplit("/", 1)[-1], parsed(settings)
    if not settings["local_repository"]:
        problems.append(
            "cuda_toolkit_local_repository is empty; set it to the path or URL of NVIDIA's cuda-repo-…-local deb"
        )
    elif not match:
        problems.append(
            f"cuda_toolkit_local_repository is '{name}', expected NVIDIA's file name, such as "
            "cuda-repo-debian12-12-4-local_12.4.1-550.54.15-1_amd64.deb"
        )
    else:
        for_distro, major, minor, full, _unused, for_machine = match.groups()
        if for_distro != distro:
            problems.append(f"cuda_toolkit_local_repository is '{name}', for {for_distro}; this host is {distro}")
        if for_machine != machine:
            problems.append(f"cuda_toolkit_local_repository is '{name}', for {for_machine}; this host is {machine}")
        asked = settings["version"]
        if asked not in (f"{major}.{minor}", full):
            problems.append(
                f"cuda_toolkit_version is '{asked}', but cuda_toolkit_local_repository holds {full} ('{name}')"
            )
        if (int(major), int(minor)) < (11, 7):
            problems.append(
                f"cuda_toolkit_local_repository holds {full}; local repositories before 11.7 have no keyring"
            )
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", settings["local_repository_checksum"]):
        seen = settings["local_repository_checksum"]
        problems.append(
            f"cuda_toolkit_local_repository_checksum is '{seen}', expected sha256: and 64 hexadecimal digits"
        )
    return problems


def problems_of(settings: dict[str, Any], file: dict[str, Any]) -> list[str]:
    """What is wrong with the file itself, and with the room for it."""
    path, wanted = settings["local_repository"], settings["local_repository_checksum"].partition(":")[2]
    if file["size"] is None:
        return [f"cuda_toolkit_local_repository: there is no {path}, or it does not answer"]
    if file["checksum"] and file["checksum"] != wanted:
        seen = file["checksum"]
        return [f"{path} has the checksum sha256:{seen}, not cuda_toolkit_local_repository_checksum (sha256:{wanted})"]
    problems = [f"{folder} cannot be written: its file system is read-only" for folder in file.get("readonly", [])]
    # The file itself, the unpacked repository, and three times as much installed.
    need: dict[str, int] = {}
    for (mount, _unused), factor in zip(file["free"], (1, 1, 3)):
        need[mount] = need.get(mount, 0) + factor * int(file["size"])
    for mount, free in dict(file["free"]).items():
        if int(free) < need[mount]:
            problems.append(f"{int(free) >> 20} MiB free on {mount}, {need[mount] >> 20} wanted for {path}")
    return problems
