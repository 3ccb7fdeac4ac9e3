#!/usr/bin/env python3
# Copyright: (c) 2026, gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a local repository file that has the name of another one and is something else.

usage: spoilt.py KIND FILE RESULT
    cut       the first 100,000 bytes of FILE
    other     a package of another release
    keyless   no key beside the repository
    unsigned  a key, and an index that it did not sign
    empty     signed, and without packages
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.lab.cuda_repo.build import Package, index, local_repository, write  # noqa: E402

NAME = re.compile(r"(cuda-repo-([a-z0-9]+)-(\d+-\d+)-local)_([^_]+)_amd64\.deb")


def repository(kind: str, name: str, version: str, distro: str, mm: str) -> Package:
    package = local_repository(name, version, distro, mm, [])
    if kind == "other":
        package.name = f"cuda-repo-{distro}-12-9-local"
    if kind == "keyless":
        package.files = {path: file for path, file in package.files.items() if not path.endswith("-keyring.gpg")}
    if kind == "unsigned":
        with tempfile.TemporaryDirectory() as temporary:
            index([], Path(temporary))
            for release in ("InRelease", "Release.gpg"):
                package.files.pop(f"/var/{name}/{release}")
            package.files[f"/var/{name}/Release"] = (Path(temporary, "Release").read_bytes(), 0o644)
    return package


def main(kind: str, original: str, result: str) -> None:
    match = NAME.fullmatch(Path(original).name)
    if not match:
        raise SystemExit(f"{original}: not the name of a local repository")
    Path(result).parent.mkdir(parents=True, exist_ok=True)
    if kind == "cut":
        with open(original, "rb") as file:
            write(Path(result), file.read(100_000))
        return
    name, distro, mm, version = match.groups()
    with tempfile.TemporaryDirectory() as temporary:
        deb = repository(kind, name, version, distro, mm).build(Path(temporary), "none")
        write(Path(result), deb.read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
