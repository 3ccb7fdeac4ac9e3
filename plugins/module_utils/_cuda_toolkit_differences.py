# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a host is not yet as the role cuda_toolkit wants it. Pure. Private.

It names nothing only where none of the role's steps would change anything.
"""

from __future__ import annotations

from typing import Any

PIN = "/etc/apt/preferences.d/cuda-repository-pin-600"


def _of_dpkg(plan: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    found = ["dpkg was interrupted"] if seen["interrupted"] else []
    found += [f"{name} was cut off while it was unpacked" for name in plan["cut"]]
    if not plan["compiler"]:
        found.append("g++ is not installed")
    if not plan["current"]:
        found.append(f"{plan['package']} {plan['version']}".strip() + " is not installed")
    rows = [line.split("|") for line in seen["family"]]
    return found + [f"{row[1]} is not held" for row in rows if row[0][:1] == "i" and row[0][1:2] in ("i", "t", "W")]


def _of_sources(plan: dict[str, Any]) -> list[str]:
    old = plan["old_packages"] + plan["old_files"] + [entry["path"] for entry in plan["old_entries"]]
    return [f"{name} names a superseded repository" for name in old]


def _of_local_repository(keep: bool, plan: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    name = plan["repository"]
    keys = seen["repositories"].get(name)
    if plan["bring"]:
        return [f"{name} is not unpacked"]
    if not keep:
        return [f"{name} is still there"] if plan["leftover"] or keys is not None else []
    if keys == {}:
        return [f"/var/{name} has no keyring"]
    # They are copied with this mode.
    wanted = {key: f"0644 {state.partition(' ')[2]}" for key, state in (keys or {}).items()}
    return [f"/usr/share/keyrings/{key}" for key, state in wanted.items() if seen["keyrings"].get(key) != state]


def _of_network(plan: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    if plan["bring_keyring"]:
        return ["cuda-keyring is not installed"]
    stem = f"/etc/apt/sources.list.d/cuda-{plan['distro']}-{plan['repository_architecture']}"
    both = [path for path in (f"{stem}.list", f"{stem}.sources") if path in seen["source_files"]]
    return [f"{path} is not cuda-keyring's" for path in both if path not in seen["owned"]]


def _of_link(plan: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    wanted = plan["link"]
    if plan["nvcc"] not in seen["nvcc"] or not wanted:
        return []
    if {f"Value: {wanted}", f"Alternative: {wanted}"} <= set(seen["alternatives"]):
        return []
    return [f"/usr/local/cuda is not {wanted}"]


def differences(
    settings: dict[str, Any], plan: dict[str, Any], seen: dict[str, Any], wanted: dict[str, str]
) -> list[str]:
    """``wanted`` are modes and checksums of files, by path, as the host's are seen."""
    source = settings["source"]
    found = _of_dpkg(plan, seen) + _of_sources(plan)
    if source == "local_repository":
        found += _of_local_repository(settings["keep_local_repository"], plan, seen)
    if source == "network":
        found += _of_network(plan, seen)
    if source != "distribution":
        found += _of_link(plan, seen)
    # A package that owns the pin file knows better.
    theirs = {PIN} if source == "local_repository" and seen["owned"] else set()
    return found + [path for path, state in wanted.items() if seen["files"][path] != state and path not in theirs]
