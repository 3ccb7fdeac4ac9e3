#!/usr/bin/env python3
# Copyright: (c) 2026, gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a repository in the shape of those that NVIDIA publishes for DOCA, for tests; its package is empty.

Writes DIR/doca with the package doca-ofed, Packages, Release and InRelease, and DIR/doca.pub, the key that signed it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.lab.cuda_repo.build import Package, index, require_tools, sign  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a repository in the shape of DOCA's.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    repository = options.out / "doca"
    if repository.is_dir():
        print(f"{repository}: up to date")
        return
    require_tools()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out) as temporary:
        directory = Path(temporary, "doca")
        directory.mkdir()
        index([Package("doca-ofed", "2.9.1-0.1.7", "ibverbs-utils, infiniband-diags")], directory)
        key = sign(directory)
        (directory / f"cuda-{key}-keyring.gpg").unlink()
        (directory / f"{key}.pub").rename(options.out / "doca.pub")
        directory.chmod(0o755)
        directory.rename(repository)
    print(f"{repository}: built")


if __name__ == "__main__":
    main()
