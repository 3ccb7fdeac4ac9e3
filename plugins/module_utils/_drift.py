# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In what a host differs from what a role wants: packages, files, units. Private to this collection.

Whatever cannot be seen differs: the tasks that bring it about look for themselves and say what is wrong.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Callable
from typing import Any

Run = Callable[[list[str]], tuple[int, str, str]]
MODES = {"file": "0644", "directory": "0755"}
UNIT_FOLDER = "/etc/systemd/system"


def packages(run: Run, names: list[str]) -> list[str]:
    """Those that dpkg has not installed, or not completely."""
    if not names:
        return []
    _rc, out, _err = run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n", *names])
    there = out.splitlines()
    return [name for name in names if f"installed {name}" not in there]


def holds(wanted: dict[str, Any]) -> bool:
    """Whether a file holds what it should; or a line, the last of those that begin as it does up to its =."""
    with open(wanted["path"], "rb") as handle:
        content = handle.read()
    if not wanted.get("line"):
        return bool(hashlib.sha256(content).hexdigest() == wanted["sha256"])
    line = wanted["line"].encode("utf-8")
    start = line[: line.index(b"=") + 1]
    return [found for found in content.splitlines() if found.startswith(start)][-1:] == [line]


def owned(wanted: dict[str, Any], status: os.stat_result) -> bool:
    """Whether owner, group and mode are as wanted. Who has only a line in a file does not own it."""
    anybody = "" if wanted.get("line") else "root"
    owner, group = wanted.get("owner") or anybody, wanted.get("group") or anybody
    if owner and pwd.getpwnam(owner).pw_uid != status.st_uid:
        return False
    if group and grp.getgrnam(group).gr_gid != status.st_gid:
        return False
    return stat.S_IMODE(status.st_mode) == int(wanted.get("mode") or MODES[wanted["state"]], 8)


def as_wanted(wanted: dict[str, Any]) -> bool:
    try:
        status = os.stat(wanted["path"])
        if wanted["state"] == "directory":
            return stat.S_ISDIR(status.st_mode) and owned(wanted, status)
        return owned(wanted, status) and holds(wanted)
    except (OSError, KeyError):  # not there, not readable; no such owner or group
        return False


def properties(out: str) -> list[dict[str, str]]:
    """What `systemctl show` says of several units, which an empty line parts."""
    return [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in out.split("\n\n")]


def units(run: Run, names: list[str], paths: list[str]) -> list[str]:
    """Units that are not enabled and active, and those of files that changed since systemd read them."""
    files = [os.path.basename(path) for path in paths if os.path.dirname(path) == UNIT_FOLDER]
    every = [*names, *(name for name in files if name not in names)]
    if not every:
        return []
    _rc, out, _err = run(["systemctl", "show", "--property=ActiveState,NeedDaemonReload", *every])
    shown = properties(out.strip("\n"))
    enabled = run(["systemctl", "is-enabled", *names])[1].splitlines() if names else []
    if len(shown) != len(every) or len(enabled) != len(names):
        return every  # one of them is not known at all
    stale = {name for name, seen in zip(every, shown) if seen.get("NeedDaemonReload") != "no"}
    idle = {name for name, seen in zip(names, shown) if seen.get("ActiveState") not in ("active", "activating")}
    off = {name for name, word in zip(names, enabled) if word.strip() != "enabled"}
    return [name for name in every if name in stale | idle | off]


def look(run: Run, wanted: dict[str, Any]) -> dict[str, Any]:
    """All that differs."""
    found: dict[str, Any] = {
        "packages": packages(run, wanted["packages"]),
        "paths": [entry["path"] for entry in wanted["files"] if not as_wanted(entry)],
        "units": units(run, wanted["units"], [entry["path"] for entry in wanted["files"]]),
    }
    return {**found, "differs": any(found.values())}
