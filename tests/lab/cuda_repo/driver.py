#!/usr/bin/env python3
# Copyright: (c) 2026, gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a driver local repository in the shape of NVIDIA's, for tests; its packages are empty.

Writes DIR/nvidia-driver-local-repo-<distro>-<version>_1.0-1_amd64.deb and the same name with .sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.lab.cuda_repo.build import Package, index, require_tools, sign, write  # noqa: E402

NAMES = ("libcuda1", "libnvidia-ml1", "nvidia-persistenced", "nvidia-kernel-dkms", "nvidia-kernel-open-dkms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a driver local repository in the shape of NVIDIA's.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--distro", default="debian12")
    parser.add_argument("--driver", required=True, metavar="VERSION")
    options = parser.parse_args()
    name = f"nvidia-driver-local-repo-{options.distro}-{options.driver}"
    deb = options.out / f"{name}_1.0-1_amd64.deb"
    if Path(f"{deb}.sha256").is_file():
        print(f"{deb}: up to date")
        return
    require_tools()
    options.out.mkdir(parents=True, exist_ok=True)
    version = f"{options.driver}-1"
    equal = ", ".join(f"{package} (= {version})" for package in NAMES[:2])
    packages = [Package(package, version) for package in NAMES]
    packages += [Package("nvidia-driver-cuda", version, equal), Package("cuda-drivers", version, "nvidia-driver-cuda")]
    with tempfile.TemporaryDirectory(dir=options.out) as temporary:
        directory = Path(temporary, "repository")
        directory.mkdir()
        index(packages, directory)
        key = sign(directory)
        keyring = f"nvidia-driver-local-{key}-keyring.gpg"
        (directory / f"cuda-{key}-keyring.gpg").rename(directory / keyring)
        files = {f"/var/{name}/{path.name}": (path.read_bytes(), 0o644) for path in directory.iterdir()}
        source = f"/etc/apt/sources.list.d/nvidia-driver-local-{options.distro}-{options.driver}.list"
        files[source] = (f"deb [signed-by=/usr/share/keyrings/{keyring}] file:///var/{name} /\n".encode(), 0o644)
        Package(name, "1.0-1", files=files, conffiles=[source]).build(Path(temporary), "none").replace(deb)
    write(Path(f"{deb}.sha256"), f"{hashlib.sha256(deb.read_bytes()).hexdigest()}  {deb.name}\n".encode())
    print(f"{deb}: built")


if __name__ == "__main__":
    main()
