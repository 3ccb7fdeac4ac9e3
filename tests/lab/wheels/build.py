# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download the wheels of a PyTorch environment once, and lock what came: the wheelhouse that lab nodes install from.

Which build of torch comes is up to pip's own configuration on this machine: the CPU build where an index or a folder
offers it, else the CUDA build, some gigabytes larger. The lock therefore carries the hashes of the files that came.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

# What the nodes' Python can install: Debian 12 has Python 3.11.
PYTHON = "3.11"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
REQUIREMENTS = ("torch==2.13.0", "numpy==2.4.6", "setuptools<82", "pip")
# A folder of their own: what only some tests install.
TOOLS = ("uv==0.13.9", "ipykernel==7.4.0")


def key(requirements: tuple[str, ...]) -> str:
    """What a wheelhouse was made from; another key means that it is made anew."""
    return hashlib.sha256(repr((PYTHON, PLATFORMS, requirements)).encode()).hexdigest()


def download(target: Path, requirements: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(target)]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    command += [f"--abi=cp{PYTHON.replace('.', '')}", "--abi=abi3", "--abi=none"]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    subprocess.run([*command, *requirements], check=True)


def lock_line(wheel: Path) -> str:
    """One line of a lock file: name, version without its local part where pip compares hashes anyway, hash."""
    name, version = wheel.name.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version.replace('_', '+')} --hash=sha256:{digest}"


def wheelhouse(out: Path, requirements: tuple[str, ...]) -> None:
    """Wheels with all that they need, and their lock, unless they are there."""
    stamp = out / ".key"
    if stamp.exists() and stamp.read_text() == key(requirements):
        return
    stamp.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.whl"):
        old.unlink()
    download(out, requirements)
    lines = sorted(lock_line(wheel) for wheel in out.glob("*.whl"))
    (out / "requirements.txt").write_text("\n".join(lines) + "\n")
    stamp.write_text(key(requirements))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    out: Path = parser.parse_args().out
    wheelhouse(out, REQUIREMENTS)
    tools = out / "tools"
    wheelhouse(tools, TOOLS)
    # What uv installs holds uv.
    locked = [path.read_text() for path in (out / "requirements.txt", tools / "requirements.txt")]
    uv = next(line for line in locked[1].splitlines() if line.startswith("uv=="))
    (tools / "torch-by-uv.txt").write_text(f"{locked[0]}{uv}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
