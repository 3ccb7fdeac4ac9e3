# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of apt's source files name a CUDA repository, and how that is taken out of them. Pure. Private.

A file that names nothing else is removed; of others, the lines that name it. Nobody's other repositories are touched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

LOCAL = r"file:/*var/cuda-repo-"
NETWORK = r"/compute/cuda/repos/"


@dataclass
class Removal:
    """Files to remove, files of which lines go, and what a user has to do."""

    files: list[str] = field(default_factory=list)
    entries: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def removal(lines: Iterable[str], pattern: str, owned: Collection[str]) -> Removal:
    """``lines`` are ``FILE:LINE``, all lines but comments of files that name a repository; ``owned`` stay."""
    files: dict[str, list[str]] = {}
    for text in lines:
        path, _colon, line = text.partition(":")
        if not line.lstrip().startswith("#"):
            files.setdefault(path, []).append(line.rstrip())
    found = Removal()
    for path, content in sorted(files.items()):
        deb822 = path.endswith(".sources")
        # Of the newer form, the values of URIs, which may go on in the next line; of the older one, whole lines.
        entries = re.findall(r"(?im)^URIs:.*(?:\n(?!\S+:).*)*", "\n".join(content)) if deb822 else content
        named = [entry for entry in entries if re.search(pattern, entry)]
        if not named or path in owned:
            continue
        if len(named) == len(entries) and path != "/etc/apt/sources.list":
            found.files.append(path)
        elif deb822:
            found.problems.append(f"{path} names a CUDA repository beside others; remove that paragraph from it")
        else:
            found.entries.append({"path": path, "regexp": rf"^\s*deb.*{pattern}"})
    return found
