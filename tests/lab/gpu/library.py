# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our stand-ins for the driver's libraries, compiled once for all labs of a cache directory."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMMON = ("nvml_config.c",)
LIBRARIES = {
    "libnvidia-ml.so.1": ("nvml.c", "nvml_links.c", "nvml_mig.c", "nvml_functions.c"),
    "libnvidia-cfg.so.1": ("nvidia_cfg.c",),
}

# Debian packages that the machine needs, and a program or file that shows that each is there.
PACKAGES: dict[str, tuple[str, ...]] = {"gcc": ("gcc",), "libc6-dev": ("/usr/include/stdio.h",)}


def build_library(cache: Path) -> Path:
    """The directory with the libraries: compiled, unless the cache holds those of these very sources."""
    sources = sorted(path for path in HERE.iterdir() if path.suffix in (".c", ".h"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    directory = cache / "gpu" / digest
    if directory.exists():
        return directory
    if not shutil.which("gcc"):
        raise RuntimeError(f"the simulated GPUs need a C compiler; install the packages {' '.join(PACKAGES)}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory.parent))
    scratch.chmod(0o755)
    try:
        for name, own in LIBRARIES.items():
            _compile(scratch / name, [HERE / source for source in (*own, *COMMON)])
        scratch.rename(directory)
    except OSError:
        if not directory.exists():  # else another lab was quicker
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return directory


def _compile(target: Path, sources: list[Path]) -> None:
    # gnu11, so that a newer machine's libc gives no symbols that the nodes' older one lacks
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC"]
    command += [f"-Wl,-soname,{target.name},-Bsymbolic,-z,defs", "-o", str(target), *map(str, sources)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise RuntimeError(f"{target.name} does not compile cleanly:\n{done.stderr}")
