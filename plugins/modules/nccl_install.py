#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module: build nccl-tests once, install the same programs everywhere."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_install
short_description: Build nccl-tests from source, or install what another node built
description:
  - Installs nccl-tests' programs into a folder, with the key of the inputs they were built from and a checksum.
  - Does nothing where the folder holds programs of the same key with the right checksum.
  - The folder is replaced as a whole after a successful build; a failed build leaves the old one.
options:
  prefix:
    description: Folder to install into; the programs lie in its C(bin).
    type: path
    required: true
  key:
    description: Name of the inputs (sources, compiler, libraries, options). Another key means another build.
    type: str
    required: true
  source:
    description: Source archive on this host to build. One of O(source) and O(package) is needed.
    type: path
  variables:
    description: Variables given to make.
    type: dict
    default: {}
  package:
    description: Archive of built programs, C(PREFIX/package.tar.gz) of the host that built them.
    type: path
  jobs:
    description: How many compilers run side by side; 0 means one a processor.
    type: int
    default: 0
attributes:
  check_mode:
    description: Says whether programs would be installed; sources and packages need not be there.
    support: full
  diff_mode:
    description: Shows the keys before and after.
    support: full
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Build nccl-tests
  gpuops.cluster.nccl_install:
    prefix: /opt/nccl-tests
    key: "{{ inputs | hash('sha256') }}"
    source: /var/cache/nccl-tests.tar.gz
    variables: {MPI: 1, MPI_HOME: /usr/lib/x86_64-linux-gnu/openmpi, CUDA_HOME: /usr/local/cuda}
"""

RETURN = r"""
digest:
  description: Checksum over all programs.
  returned: when the programs are there
  type: str
log:
  description: What make printed, its end.
  returned: when make failed
  type: str
"""

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils._launch import output

STAMP = "stamp"
PACKAGE = "package.tar.gz"


class InstallError(Exception):
    """What went wrong, and the log of it."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def digest(folder: Path) -> str:
    """SHA-256 over the programs in order of their names; what `cat bin/*_perf | sha256sum` gives."""
    total = hashlib.sha256()
    for program in sorted(folder.glob("*_perf")):
        with program.open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                total.update(block)
    return total.hexdigest()


def installed(prefix: Path) -> tuple[str, str]:
    """Key and checksum of what is installed and intact; empty where it is not."""
    try:
        key, recorded = (prefix / STAMP).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "", ""
    return (key, recorded) if digest(prefix / "bin") == recorded else ("", "")


def stamp_of(package: Optional[str]) -> str:
    """Key and checksum of a package of programs; empty where there is none to read."""
    try:
        with tarfile.open(package or "") as content:
            stamp = content.extractfile(STAMP)
            return stamp.read().decode().strip() if stamp else ""
    except (OSError, KeyError, tarfile.TarError, EOFError):
        return ""


def unpack(archive: Path, into: Path) -> None:
    """Unpack without leaving `into`, whatever the archive names."""
    try:
        with tarfile.open(archive) as content:
            for member in content.getmembers():
                target = (into / member.name).resolve()
                inside = target == into or into in target.parents
                if not inside or not (member.isfile() or member.isdir() or member.issym()):
                    raise InstallError(f"{archive} holds {member.name}, which does not belong into such an archive")
                if member.issym() and into not in ((target.parent / member.linkname).resolve()).parents:
                    raise InstallError(f"{archive}: {member.name} points outside")
            if hasattr(tarfile, "data_filter"):  # from Python 3.12 on, and in the latest releases of those before
                content.extraction_filter = tarfile.data_filter
            content.extractall(into)
    except (tarfile.TarError, EOFError) as error:
        raise InstallError(f"{archive} is no readable tar archive: {error}") from error


def nccl(home: str, work: Path) -> tuple[str, dict[str, str]]:
    """Where the Makefile finds NCCL, and what makes the programs find it again on every node.

    Python's wheel has the library under its versioned name alone, other trees have it in lib64: links in `work` give it
    the name and place that the Makefile knows. The loader gets the real folder, written into the programs.
    """
    for folder in ("lib", "lib64"):
        found = sorted(Path(home, folder).glob("libnccl.so*"))
        if found:
            break
    else:
        raise InstallError(f"{home} has no lib/libnccl.so (NCCL_HOME)")
    if not Path(home, "include/nccl.h").is_file():
        raise InstallError(f"{home} has no include/nccl.h (NCCL_HOME); in a source tree of NCCL that is in build")
    tree = work / "nccl"
    (tree / "lib").mkdir(parents=True)
    (tree / "include").symlink_to(Path(home, "include"))
    (tree / "lib/libnccl.so").symlink_to(found[0])
    return str(tree), {"LD_RUN_PATH": str(found[0].parent)}


def build(source: Path, variables: dict[str, Any], jobs: int, work: Path) -> Path:
    """Run make in the archive's folder; returns the folder of programs."""
    unpack(source, work)
    environment: dict[str, str] = {}
    if variables.get("NCCL_HOME"):
        home, environment = nccl(str(variables["NCCL_HOME"]), work)
        variables = {**variables, "NCCL_HOME": home}
    makefiles = [path for path in (work, *sorted(work.iterdir())) if (path / "Makefile").is_file()]
    if not makefiles:
        raise InstallError(f"{source} has no Makefile in its top folder: not a source archive of nccl-tests")
    out = work / "programs"
    words = [f"{name}={value}" for name, value in sorted(variables.items()) if str(value)]
    command = ["make", f"-j{jobs or os.cpu_count() or 1}", *words, f"BUILDDIR={out}"]
    try:
        code, said = output(command, makefiles[0], environment)
    except OSError as error:
        raise InstallError(f"make cannot be started: {error.strerror}") from error
    if code or not (out / "all_reduce_perf").is_file():
        lines = [line for line in said.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower() or "not found" in line.lower() or "***" in line]
        reason = (telling or lines or ["no output"])[0]
        raise InstallError(f"{' '.join(command)} failed: {reason}", "\n".join(lines[-60:]))
    return out


def place(programs: Path, prefix: Path, key: str) -> str:
    """Put programs, stamp and package in place of what was in `prefix`; returns the checksum."""
    fresh, old = prefix.with_name(f".{prefix.name}.new"), prefix.with_name(f".{prefix.name}.old")
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    (fresh / "bin").mkdir(parents=True)
    for program in programs.glob("*_perf"):
        shutil.copy(program, fresh / "bin" / program.name)
        (fresh / "bin" / program.name).chmod(0o755)
    total = digest(fresh / "bin")
    (fresh / STAMP).write_text(f"{key} {total}\n", encoding="utf-8")
    with tarfile.open(fresh / PACKAGE, "w:gz", compresslevel=3) as package:
        for name in ("bin", STAMP):
            package.add(fresh / name, arcname=name)
    for folder in (fresh, fresh / "bin"):
        folder.chmod(0o755)
    if prefix.exists():
        prefix.rename(old)
    fresh.rename(prefix)
    shutil.rmtree(old, ignore_errors=True)
    return total


def install(params: dict[str, Any], work: Path) -> str:
    """Build or unpack, then put into place."""
    prefix = Path(params["prefix"])
    if params["source"]:
        return place(build(Path(params["source"]), params["variables"], params["jobs"], work), prefix, params["key"])
    unpack(Path(params["package"]), work)
    if installed(work)[0] != params["key"]:
        raise InstallError(f"{params['package']} was built from other inputs, or is damaged")
    return place(work / "bin", prefix, params["key"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "prefix": {"type": "path", "required": True},
            "key": {"type": "str", "required": True, "no_log": False},
            "source": {"type": "path"},
            "variables": {"type": "dict", "default": {}},
            "package": {"type": "path"},
            "jobs": {"type": "int", "default": 0},
        },
        required_one_of=[("source", "package")],
        mutually_exclusive=[("source", "package")],
        supports_check_mode=True,
    )
    key, found = installed(Path(module.params["prefix"]))
    if key == module.params["key"] and stamp_of(module.params["package"]) in ("", f"{key} {found}"):
        module.exit_json(changed=False, digest=found)
    result: dict[str, Any] = {"changed": True}
    result["diff"] = {"before": f"{key or 'nothing'}\n", "after": f"{module.params['key']}\n"}
    if module.check_mode:
        module.exit_json(**result)
    try:
        with tempfile.TemporaryDirectory(prefix="nccl-tests-", dir="/var/tmp") as work:
            result["digest"] = install(module.params, Path(work).resolve())
    except InstallError as error:
        module.fail_json(msg=str(error), log=error.log)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
