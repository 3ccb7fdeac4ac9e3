# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel parameters: compares, sets, reads back. Arguments: plan|apply, JSON {key: value}, our file in /etc/sysctl.d.

Prints {"changed": bool, "skipped": [sentence], "overridden": [sentence]}; the last names a file that is read after ours
and says otherwise, so that the value would not survive a reboot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PROC = Path("/proc/sys")
# In the order of systemd-sysctl: a file in an earlier directory hides one of the same name in a later one.
DIRECTORIES = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")


def node(key: str) -> Path:
    return PROC / key.replace(".", "/")


def present(key: str) -> str:
    return " ".join(node(key).read_text().split())


def later_files(ours: str) -> list[Path]:
    """Files that are read after ours, in that order."""
    found: dict[str, Path] = {}
    for directory in DIRECTORIES:
        for path in Path(directory).glob("*.conf"):
            found.setdefault(path.name, path)
    return [found[name] for name in sorted(found) if name > Path(ours).name]


def assignments(path: Path) -> dict[str, str]:
    values = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        key, sign, value = line.strip().lstrip("-").partition("=")
        if sign and not key.startswith(("#", ";")):
            values[key.strip().replace("/", ".")] = " ".join(value.split())
    return values


def converge(wanted: dict[str, str], ours: str, apply: bool) -> dict[str, object]:
    changed = False
    skipped, overridden = [], []
    for key, value in wanted.items():
        try:
            if present(key) == value:
                continue
            if apply:
                node(key).write_text(value)
            else:
                with node(key).open("r+"):
                    pass
            changed = True
            if apply and present(key) != value:
                skipped.append(f"{key}: the kernel keeps {present(key)}, not {value}")
        except OSError as error:
            skipped.append(f"{key} {value}: {error.strerror}")
    for path in later_files(ours):
        for key, value in assignments(path).items():
            if key in wanted and value != wanted[key]:
                overridden.append(f"{path} sets {key} to {value} after our file")
    return {"changed": changed, "skipped": skipped, "overridden": overridden}


if __name__ == "__main__":
    print(json.dumps(converge(json.loads(sys.argv[2]), sys.argv[3], sys.argv[1] == "apply")))
