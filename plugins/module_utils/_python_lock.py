# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files of pip: exact versions with hashes. Private to this collection."""

from __future__ import annotations

import hashlib
import re

NAME = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*(==\s*(?P<version>[^\s;\\]+))?")
CUDA_MAJOR = re.compile(r"^nvidia-.*-cu(?P<major>\d+)$")


def logical_lines(lock: str) -> list[str]:
    """Lines with continuations joined; comments and empty lines left out."""
    joined = re.sub(r"\\\r?\n", " ", lock)
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]


def requirements(lock: str) -> dict[str, str | None]:
    """Normalised project name to locked version (None where none is locked); options such as --hash are left out."""
    found: dict[str, str | None] = {}
    for line in logical_lines(lock):
        match = NAME.match(line)
        if match:
            found[re.sub(r"[-_.]+", "-", match["name"]).lower()] = match["version"]
    return found


def problems(lock: str) -> list[str]:
    """Why a lock cannot be used, empty when it can."""
    lines = [line for line in logical_lines(lock) if NAME.match(line)]
    if not lines:
        return ["holds no requirement"]
    found = [f"'{line.split()[0]}' has no exact version" for line in lines if "==" not in line]
    found += [f"'{line.split()[0]}' has no --hash" for line in lines if "==" in line and "--hash=" not in line]
    majors: dict[str, list[str]] = {}
    for name in requirements(lock):
        match = CUDA_MAJOR.match(name)
        if match:
            majors.setdefault(match["major"], []).append(name)
    if len(majors) > 1:
        sides = "; ".join(f"CUDA {major}: {', '.join(names)}" for major, names in sorted(majors.items()))
        found.append(f"mixes wheels of two CUDA majors ({sides})")
    return found


def digest(lock: str) -> str:
    """What identifies an environment: SHA-256 over the requirements, whatever the comments and their order."""
    return hashlib.sha256(
        "\n".join(sorted(" ".join(line.split()) for line in logical_lines(lock))).encode()
    ).hexdigest()


def only(lock: str, name: str) -> str:
    """The lines of one project, for what must be installed before the rest."""
    chosen = [line for line in logical_lines(lock) if list(requirements(line)) == [name]]
    return "".join(f"{line}\n" for line in chosen)
