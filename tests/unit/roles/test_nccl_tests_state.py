# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the build host is found to have: prefixes of MPI and NCCL that were given one level too deep, or half."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

STATE = Path(__file__).resolve().parents[3] / "roles/nccl_tests/files/state.sh"


def prefix(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def state(*packages: str, mpi: str = "", nccl: str = "", path: Path | None = None) -> dict[str, str]:
    words = ["sh", str(STATE), "/nonexistent", "/nonexistent", nccl, mpi, "", *packages]
    environment = {**os.environ, "PATH": f"{path or '/nonexistent'}:{os.environ['PATH']}"}
    lines = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
    return dict((line.split("=", 1)[0], line.split("=", 1)[1]) for line in lines)


@pytest.mark.parametrize("library", ["lib/libmpi.so", "lib64/libmpi.so"])
def test_mpi_is_whole_in_lib_or_lib64(tmp_path: Path, library: str) -> None:
    found = state(mpi=str(prefix(tmp_path, "include/mpi.h", library)))
    assert (found["mpi_home"], found["mpi_problem"]) == (str(tmp_path), "")


@pytest.mark.parametrize(
    ("files", "given", "words"),
    [
        (["include/mpi.h", "lib/libmpi.so"], "include", "include/include/mpi.h is missing"),
        (["lib/libmpi.so"], "", "include/mpi.h is missing"),
        (["include/mpi.h"], "", "has neither lib/libmpi.so nor lib64/libmpi.so"),
    ],
)
def test_what_of_mpi_is_missing_is_named(tmp_path: Path, files: list[str], given: str, words: str) -> None:
    assert words in state(mpi=str(prefix(tmp_path, *files) / given))["mpi_problem"]


def test_a_source_tree_of_nccl_is_no_prefix(tmp_path: Path) -> None:
    prefix(tmp_path, "src/include/nccl.h", "build/include/nccl.h", "build/lib/libnccl.so.2")
    assert "include/nccl.h is missing" in state(nccl=str(tmp_path))["nccl_problem"]
    assert state(nccl=str(tmp_path / "build"))["nccl_problem"] == ""


def test_packages_that_are_missing_or_of_another_version_are_named(tmp_path: Path) -> None:
    """A stand-in for dpkg-query, which knows another architecture of each, and a rest of one."""
    known = {"openmpi-bin": "installed 4.1.4-3", "make": "config-files 4.3-4", "libnccl2": "installed 2.27.7-1"}
    cases = "\n".join(
        f"{name}) printf '{said.split()[0]}\\n{said}\\nnot-installed\\nnot-installed 1\\n' ;;"
        for name, said in known.items()
    )
    program = tmp_path / "dpkg-query"
    program.write_text(f"#!/bin/sh\ncase $3 in\n{cases}\n*) exit 1 ;;\nesac\n")
    program.chmod(0o755)
    assert state("openmpi-bin", "libnccl2=2.27.7-1", path=tmp_path)["missing"] == ""
    assert state("openmpi-bin", "make", "g++", "libnccl2=2.28.1-1", path=tmp_path)["missing"] == (
        "make g++ libnccl2=2.28.1-1"
    )
    assert state(path=tmp_path)["missing"] == ""
