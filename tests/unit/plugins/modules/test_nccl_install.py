# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Building, packing and installing programs, with real make and real archives."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.modules import nccl_install as module

MAKEFILE = """
$(BUILDDIR)/all_reduce_perf:
\tmkdir -p $(BUILDDIR)
\techo 'MPI=$(MPI) home=$(MPI_HOME) gencode=$(NVCC_GENCODE)' > $@
\techo other > $(BUILDDIR)/alltoall_perf
"""


def archive(path: Path, makefile: str = MAKEFILE, name: str = "nccl-tests-2.17.6/Makefile") -> str:
    with tarfile.open(path, "w:gz") as content:
        entry = tarfile.TarInfo(name)
        entry.size = len(makefile)
        content.addfile(entry, io.BytesIO(makefile.encode()))
    return str(path)


def params(tmp_path: Path, **given: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "prefix": str(tmp_path / "opt"),
        "key": "k1",
        "source": None,
        "package": None,
        "variables": {},
        "jobs": 1,
    }
    return {**usual, **given}


def run(tmp_path: Path, work: str = "work", **given: Any) -> str:
    folder = tmp_path / work
    folder.mkdir()
    return module.install(params(tmp_path, **given), folder.resolve())


def test_build_installs_programs_with_key_and_checksum(tmp_path: Path) -> None:
    flags = {"MPI": 1, "MPI_HOME": "/usr/mpi", "NVCC_GENCODE": "-gencode=arch=compute_90,code=sm_90", "NCCL_HOME": ""}
    found = run(tmp_path, source=archive(tmp_path / "s.tar.gz"), variables=flags)
    program = (tmp_path / "opt/bin/all_reduce_perf").read_text()
    assert program == "MPI=1 home=/usr/mpi gencode=-gencode=arch=compute_90,code=sm_90\n"
    assert module.installed(tmp_path / "opt") == ("k1", found)
    summed = subprocess.run(
        "cat *_perf | sha256sum", shell=True, cwd=tmp_path / "opt/bin", capture_output=True, check=True
    )
    assert summed.stdout.decode().split()[0] == found, "the shell probe of the role computes the same"


def test_package_brings_the_same_bytes_elsewhere(tmp_path: Path) -> None:
    found = run(tmp_path, source=archive(tmp_path / "s.tar.gz"))
    package = str(tmp_path / "opt/package.tar.gz")
    assert module.stamp_of(package) == f"k1 {found}"
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, package=package) == found
    with pytest.raises(module.InstallError, match="other inputs"):
        run(other, "work2", package=package, key="k2")


def test_damage_is_seen(tmp_path: Path) -> None:
    run(tmp_path, source=archive(tmp_path / "s.tar.gz"))
    (tmp_path / "opt/bin/all_reduce_perf").write_text("broken")
    assert module.installed(tmp_path / "opt") == ("", "")


def test_failed_build_leaves_the_old_programs_and_says_why(tmp_path: Path) -> None:
    found = run(tmp_path, source=archive(tmp_path / "s.tar.gz"))
    bad = archive(tmp_path / "bad.tar.gz", "all:\n\t@echo 'mpi.h: error: no such file'; exit 1\n")
    with pytest.raises(module.InstallError, match=r"mpi\.h: error") as caught:
        run(tmp_path, source=bad, key="k2", work="fresh")
    assert "mpi.h" in caught.value.log
    assert module.installed(tmp_path / "opt") == ("k1", found)


@pytest.mark.parametrize(
    ("name", "words"), [("../evil", "does not belong"), ("top/README", "no Makefile"), ("/etc/evil", "does not belong")]
)
def test_strange_archives_are_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(module.InstallError, match=words):
        run(tmp_path, source=archive(tmp_path / "s.tar.gz", name=name))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>not found</html>")
    with pytest.raises(module.InstallError, match="no readable tar archive"):
        run(tmp_path, source=str(tmp_path / "page.html"))


def test_top_folder_is_not_needed(tmp_path: Path) -> None:
    run(tmp_path, source=archive(tmp_path / "s.tar.gz", name="Makefile"))
    assert (tmp_path / "opt/bin/alltoall_perf").exists()
