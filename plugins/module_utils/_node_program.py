# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One executable file from a program and the module_utils that it imports. Private to this collection.

Programs that stay on a node (health checks, exporters) read GPUs with the very code that gpu_facts uses. The file is a
zip archive that Python runs (see the standard library's zipapp); the same sources give the same bytes.
"""

from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path

PACKAGE = "ansible_collections.gpuops.cluster.plugins.module_utils"
SHEBANG = b"#!/usr/bin/python3\n"


def imported(source: str) -> set[str]:
    """Names of the module_utils that a source imports, absolutely or relatively."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module == PACKAGE or (node.level == 1 and not module):
                names |= {alias.name for alias in node.names}
            elif module.startswith(f"{PACKAGE}."):
                names.add(module[len(PACKAGE) + 1 :])
            elif node.level == 1:
                names.add(module)
    return names


def library(main: str, folder: Path) -> dict[str, str]:
    """Sources of all module_utils that a program needs, by name; FileNotFoundError where one does not exist."""
    found: dict[str, str] = {}
    wanted = imported(main)
    while wanted:
        name = wanted.pop()
        found[name] = (folder / f"{name}.py").read_text(encoding="utf-8")
        wanted |= imported(found[name]) - found.keys()
    return found


def archive(main: str, folder: Path) -> bytes:
    """The executable: shebang, then the zip archive with the program as __main__.py."""
    files = {"__main__.py": main}
    path = ""
    for part in PACKAGE.split("."):
        path += f"{part}/"
        files[f"{path}__init__.py"] = ""
    files.update({f"{path}{name}.py": source for name, source in library(main, folder).items()})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for name, source in sorted(files.items()):
            target.writestr(zipfile.ZipInfo(name), source)  # dated 1980: no clock in the bytes
    return SHEBANG + buffer.getvalue()
