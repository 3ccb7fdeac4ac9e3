# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mode and MTU of IPoIB interfaces, compared, set and read back.

Argument: JSON {"mode": "datagram" | "connected" | "keep", "mtu": n or 0, "allow_restart": bool, "apply": bool}.
Prints {"changed": bool, "links": [name], "skipped": [sentence], "waits": [sentence]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

INFINIBAND = "32"
# Receive-path acceleration of mlx5 knows no connected mode; the module's option turns it off.
ENHANCED = (
    "; where the driver accelerates IPoIB, connected mode needs the option ipoib_enhanced=0 of the module ib_ipoib"
)


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def write(path: Path, value: str) -> str:
    try:
        path.write_text(value + "\n")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def settings(request: dict) -> list[tuple[str, str]]:
    """Files and values. The mode comes first: it limits the MTU, and its change sets one."""
    wanted = [("mode", request["mode"])] if request["mode"] != "keep" else []
    return wanted + ([("mtu", str(request["mtu"]))] if request["mtu"] else [])


def converge(request: dict) -> dict:
    net = Path(request.get("sysfs", "/sys"), "class/net")
    links = sorted(path.name for path in net.iterdir() if read(path / "type") == INFINIBAND)
    changed, skipped, waits = False, [], []
    if not links:
        skipped.append("IPoIB: no IPoIB interface")
    for link in links:
        for name, value in settings(request):
            file = net / link / name
            before = read(file)
            if before == value:
                continue
            if not before:
                skipped.append(f"{link} {name} {value}: the driver has no {name}")
            elif read(net / link / "carrier") == "1" and not request["allow_restart"]:
                waits.append(
                    f"{link} {name} {value}: interrupts the link: set infiniband_ipoib_restart_allowed: true, or reboot"
                )
            elif not request["apply"]:
                changed = True
            else:
                words = write(file, value)
                after = read(file)
                changed = changed or after != before
                if after != value:
                    hint = ENHANCED if value == "connected" else ""
                    skipped.append(f"{link} {name} {value}: {words or 'the driver keeps ' + after}{hint}")
    return {"changed": changed, "links": links, "skipped": skipped, "waits": waits}


if __name__ == "__main__":
    print(json.dumps(converge(json.loads(sys.argv[1]))))
