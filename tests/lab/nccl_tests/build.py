#!/usr/bin/env python3
# Copyright: Contributors to the gpuops.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack the lab's stand-in for nccl-tests as a source archive of the shape that NVIDIA's releases have."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "nccl-tests-2.17.6"
FILES = ("Makefile", "src/standin.c")


def pack(out: Path) -> Path:
    """Write NAME.tar.gz and NAME.tar.gz.sha256 into `out`, the same bytes for the same sources. Returns the archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in FILES:
            entry = tarfile.TarInfo(f"{NAME}/{name}")
            content = (HERE / name).read_bytes()
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    packed = gzip.compress(plain.getvalue(), mtime=0)
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{NAME}.tar.gz"
    target.write_bytes(packed)
    digest = hashlib.sha256(packed).hexdigest()
    target.with_name(f"{target.name}.sha256").write_text(f"{digest}  {target.name}\n")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the archive and its checksum")
    parser.add_argument(
        "--cache", type=Path, help="taken like by the lab's other generators; nothing is downloaded here"
    )
    print(pack(parser.parse_args().out))


if __name__ == "__main__":
    main()
