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


LINKING = """
$(BUILDDIR)/all_reduce_perf: main.c
\tmkdir -p $(BUILDDIR)
\tcc -I$(NCCL_HOME)/include -o $@ main.c -L$(NCCL_HOME)/lib -lnccl
"""


@pytest.mark.parametrize("folder", ["lib", "lib64"])
def test_the_wheel_s_nccl_is_linked_and_found_again_without_a_loader_path(tmp_path: Path, folder: str) -> None:
    """The wheel holds libnccl.so.2 and no libnccl.so; a real compiler links it, and the program starts."""
    home = tmp_path / "site-packages/nvidia/nccl"
    (home / folder).mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include/nccl.h").write_text("int ncclVersion(void);\n")
    (tmp_path / "nccl.c").write_text("int ncclVersion(void) { return 22707; }\n")
    library = home / folder / "libnccl.so.2"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", str(library), str(tmp_path / "nccl.c")]
    subprocess.run(command, check=True)
    main = "#include <nccl.h>\nint main(void) { return ncclVersion() != 22707; }\n"
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as content:
        for name, text in (("top/Makefile", LINKING), ("top/main.c", main)):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            content.addfile(entry, io.BytesIO(text.encode()))
    run(tmp_path, source=str(tmp_path / "s.tar.gz"), variables={"NCCL_HOME": str(home)})
    program = tmp_path / "opt/bin/all_reduce_perf"
    assert subprocess.run([program], env={}, check=False).returncode == 0
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert f"libnccl.so.2 => {library}" in needed, "what stage 0 hashes"


def test_homes_without_nccl_are_refused(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    source = archive(tmp_path / "s.tar.gz")
    with pytest.raises(module.InstallError, match=r"no lib/libnccl\.so"):
        run(tmp_path, source=source, variables={"NCCL_HOME": str(tmp_path)})
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnccl.so").touch()
    with pytest.raises(module.InstallError, match=r"no include/nccl\.h"):
        run(tmp_path, "work2", source=source, variables={"NCCL_HOME": str(tmp_path)})
