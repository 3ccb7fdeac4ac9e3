# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver refuses, each with the value seen and the variable to set. Private to this collection.

`settings` are the role's variables without their prefix, `host` is what was read from it, with what the probe said.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_disk_space import room_problems
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_holders import holders
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_packages import matches, number
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_signing import signing_problems


def before_asking(settings: dict[str, Any], host: dict[str, Any], first: str) -> list[str]:
    """What can be refused before any repository is asked; ``first`` is the package whose version is the family's."""
    problems = []
    version, source = settings["version"], settings["source"]
    if version and not re.fullmatch(r"\d{3}(\.\d+){0,2}", version):
        problems.append(
            f"nvidia_driver_version is '{version}', expected a branch such as '535' or a version such as '535.309.01'"
        )
    if not version and (source != "distribution" or host["distribution"] == "Ubuntu"):
        problems.append("nvidia_driver_version is empty; set the branch, such as '550': this source has several")
    if source == "nvidia" and not settings["repository"]:
        problems.append(
            "nvidia_driver_repository is empty; set it to NVIDIA's cuda-keyring or nvidia-driver-local-repo deb"
        )
    if source == "local" and not settings["repository"]:
        problems.append("nvidia_driver_repository is empty; set it to the folder of debs, with SHA256SUMS in it")
    if source != "distribution" and not re.fullmatch(r"sha256:[0-9a-f]{64}", settings["repository_checksum"]):
        seen = settings["repository_checksum"]
        problems.append(f"nvidia_driver_repository_checksum is '{seen}', expected sha256: and 64 hexadecimal digits")
    if host["runfile"]:
        problems.append("a driver of NVIDIA's runfile installer is here; remove it with nvidia-uninstall first")
    ahead = host["installed"].get(first, "")
    wanted = tuple(int(part) for part in re.findall(r"\d+", version))
    if ahead and wanted and not (matches(ahead, version) or number(ahead) < wanted or settings["downgrade_allowed"]):
        problems.append(
            f"{first} {ahead} is installed and nvidia_driver_version is '{version}'; to go back, set "
            "nvidia_driver_downgrade_allowed: true"
        )
    foreign = sorted(name for name in host["installed"] if re.match(r"(lib)?nvidia-(tesla|legacy)-(?!check$)", name))
    if foreign:
        problems.append(f"another driver family is installed ({', '.join(foreign)}); purge it first")
    return problems + (signing_problems(settings, host) if settings["kernel_modules"] else [])


def before_changing(settings: dict[str, Any], host: dict[str, Any], packages: dict[str, str]) -> list[str]:
    """What speaks against changing what is installed to `packages`, package to version."""
    problems = []
    older = {n: v for n, v in packages.items() if n in host["installed"] and number(v) < number(host["installed"][n])}
    if older and not settings["downgrade_allowed"]:
        steps = ", ".join(sorted({f"{host['installed'][name]} to {version}" for name, version in older.items()}))
        problems.append(
            f"this would go back from {steps}; set nvidia_driver_downgrade_allowed: true, or another version"
        )
    changes = [name for name, version in packages.items() if host["installed"].get(name, version) != version]
    if any(host["installed"].get(name) != version for name, version in packages.items()):
        problems += room_problems(host["room"], host["readonly"], host["initrd"], settings["kernel_modules"])
    _services, users = holders(host["holders"], settings.get("services", []))
    if changes and users and settings["kernel_modules"] and not settings.get("ignore_users"):
        problems.append(
            f"GPUs are in use by {', '.join(users)}; drain the host before its driver is changed, or name services "
            "that may be stopped in nvidia_driver_services"
        )
    return problems
