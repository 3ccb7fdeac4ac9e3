# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the first look at a host asks, and how its answer is read. Private to this collection."""

from __future__ import annotations

import shlex
from typing import Any

# POSIX sh, no Python: a host without Python must be told apart from a host that is down. The clock comes first, so that
# the time the rest takes does not count as an offset.
SCRIPT = r"""
echo "epoch=$(date +%s.%N)"
echo "hostname=$(hostname -s 2>/dev/null || uname -n)"
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
(. /etc/os-release && echo "os_id=$ID" && echo "os_version=$VERSION_ID")
echo "python=$("$PYTHON" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)"
df -Pk / /usr /var 2>/dev/null | while read -r _ _ _ free _ mount; do echo "free_kib:$mount=$free"; done
for name in $NAMES; do echo "resolves:$name=$(getent ahosts "$name" | awk '{print $1}' | sort -u | tr '\n' ' ')"; done
"""


def command(python: str, names: list[str]) -> str:
    """The shell command of one look: interpreter to try, names to resolve."""
    return f"PYTHON={shlex.quote(python)} NAMES={shlex.quote(' '.join(names))}; {SCRIPT}"


def parse(text: str, started: float, ended: float) -> dict[str, Any]:
    """Turn the answer into a dictionary.

    started, ended: seconds since the epoch on the control node around the call. The remote clock was read somewhere in
    between, so its offset is known to half the time that the call took: `clock_offset_s` plus or minus `clock_error_s`.
    Values that are missing or unreadable are None or empty; the text comes from the host and is not trusted.
    """
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    free = {k.partition(":")[2]: v for k, v in pairs.items() if k.startswith("free_kib:") and v.isdigit()}
    resolves = {k.partition(":")[2]: v.split() for k, v in pairs.items() if k.startswith("resolves:")}
    try:
        offset = round(float(pairs.get("epoch", "")) - (started + ended) / 2, 3)
    except ValueError:
        offset = None
    return {
        "hostname": pairs.get("hostname") or None,
        "machine": pairs.get("machine") or None,
        "kernel": pairs.get("kernel") or None,
        "os": {"id": pairs.get("os_id") or None, "version": (pairs.get("os_version") or "").strip('"') or None},
        "python": pairs.get("python") or None,
        "free_mib": {mount: int(value) // 1024 for mount, value in free.items()},
        "resolves": resolves,
        "clock_offset_s": offset,
        "clock_error_s": round((ended - started) / 2, 3),
    }
