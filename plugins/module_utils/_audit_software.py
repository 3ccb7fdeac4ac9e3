# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is installed on a host, read from files alone. Private to this collection."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any

from ._nvidia_packages import upstream
from ._pci import entries, read
from ._python_environment import STAMP

NONE = "none"  # known to be absent, which is something to compare; an unknown value is null
PACKAGES = re.compile(
    r"(?P<driver>(lib)?nvidia-(compute|dkms|utils|driver|kernel)[a-z0-9-]*|libnvidia-ml1|libcuda1|nvidia-smi)"
    r"|(?P<fabric_manager>nvidia-fabric-?manager(-\d+)?)"
    r"|(?P<nccl>libnccl2)"
    r"|(?P<slurm>slurm(d|ctld|dbd|-client|-smd(-\w+)?))"
)
# Driver packages whose version is that of the driver on disk; others are settings, helpers and transitional packages.
DRIVER = re.compile(
    r"libnvidia-ml1|libcuda1|nvidia-smi|nvidia-driver-cuda|nvidia(-open)?-kernel(-open)?-dkms"
    r"|(libnvidia-compute|nvidia-utils|nvidia-dkms)-\d+(-server)?(-open)?"
)
LIBRARIES = (
    "usr/lib",
    "usr/lib64",
    "usr/lib/*-linux-gnu",
    "usr/local/lib",
    "usr/local/lib64",
    "usr/local/cuda-*/lib64",
)


def system(root: str) -> str | None:
    """The distribution with its point release, which Debian keeps in a file of its own."""
    pairs = dict(re.findall(r"^(\w+)=\"?(.*?)\"?$", read(root, "etc/os-release") or "", re.MULTILINE))
    name, version = pairs.get("NAME", ""), pairs.get("VERSION_ID", "")
    if pairs.get("ID") == "debian":
        return f"Debian {read(root, 'etc/debian_version') or version}".strip()
    if pairs.get("ID") == "ubuntu":
        return pairs.get("PRETTY_NAME") or f"{name} {version}".strip() or None
    return f"{name} {version}".strip() or None


def packages(root: str) -> dict[str, dict[str, str]]:
    """Installed packages with their versions, by the kinds of PACKAGES; from dpkg's own file, without a process."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in PACKAGES.groupindex}
    name = installed = ""
    try:
        with open(os.path.join(root, "var/lib/dpkg/status"), encoding="utf-8", errors="replace") as stream:
            for line in stream:
                key, _colon, value = line.partition(": ")
                if key == "Package":
                    name, installed = value.strip(), ""
                elif key == "Status":
                    installed = value.strip().rpartition(" ")[2]
                elif key == "Version" and installed == "installed":
                    match = PACKAGES.fullmatch(name)
                    if match:
                        kind = next(kind for kind, text in match.groupdict().items() if text)
                        found[kind][name] = value.strip()
    except OSError:
        pass
    return found


def versions(found: dict[str, str]) -> str:
    """The releases of packages that should have one; more than one is shown as such."""
    return ", ".join(sorted({upstream(version) for version in found.values()})) or NONE


def _libraries(root: str, name: str) -> dict[str, str]:
    """{version: folder} of a library's files, such as libnccl.so.2.21.5."""
    found: dict[str, str] = {}
    for pattern in LIBRARIES:
        for path in sorted(glob.glob(os.path.join(root, pattern, f"{name}.so.*"))):
            version = os.path.basename(path).partition(".so.")[2]
            if re.fullmatch(r"\d+(\.\d+)+", version) and not os.path.islink(path):
                found.setdefault(version, "/" + os.path.relpath(os.path.dirname(path), root))
    return found


def driver(root: str, found: dict[str, str], answered: str | None) -> str:
    """The driver on disk: by packages, by its library where no package brought it, else as the driver answers."""
    known = {name: version for name, version in found.items() if DRIVER.fullmatch(name)}
    if known:
        return versions(known)
    return ", ".join(sorted(_libraries(root, "libnvidia-ml"))) or answered or NONE


def nccl(root: str, found: dict[str, str]) -> str:
    """NCCL of the system: the package, and libraries that no package brought."""
    packaged = [upstream(version) for version in found.values()]
    others = [
        f"{version} in {folder}" for version, folder in _libraries(root, "libnccl").items() if version not in packaged
    ]
    return ", ".join([*found.values(), *others]) or NONE


def _project(site: list[str], name: str) -> str | None:
    """Version of a Python project, from the name of its metadata folder."""
    pattern = re.compile(rf"{name}-(\d[^-]*)\.dist-info")
    return next((match[1] for entry in site if (match := pattern.fullmatch(entry))), None)


def environments(root: str) -> list[dict[str, Any]]:
    """Environments in use, which are the links in their root: {name, torch, nccl, lock}, null where not found."""
    found = []
    for name in entries(root):
        link = os.path.join(root, name)
        if not os.path.islink(link):
            continue  # superseded ones are kept for jobs that still run in them
        try:
            lock = json.loads(read(link, STAMP) or "")["lock_sha256"]
        except (ValueError, TypeError, LookupError):
            lock = None
        site = [
            entry for path in glob.glob(os.path.join(link, "lib/python3*/site-packages")) for entry in entries(path)
        ]
        found.append(
            {
                "name": name,
                "torch": _project(site, "torch"),
                "nccl": _project(site, r"nvidia_nccl_cu\d+"),
                "lock": lock[:12] if isinstance(lock, str) else None,
            }
        )
    return found
