# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins from this node to others as each trusted user, without a prompt and with verified host keys.

Private to this collection.
"""

from __future__ import annotations

import random
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

OPTIONS = (
    "BatchMode=yes StrictHostKeyChecking=yes ConnectTimeout=10 ControlPath=none PreferredAuthentications=publickey"
)


def destination(target: dict[str, Any]) -> str:
    """The target's name where this node can resolve it, as users type it; else its address."""
    try:
        socket.getaddrinfo(target["name"], target["port"])
    except OSError:
        return str(target["address"])
    return str(target["name"])


# An sshd with too many connections in their beginnings (MaxStartups) drops new ones: all nodes come at once.
BUSY = re.compile(r"exchange_identification|banner exchange|^Connection (closed|reset) by", re.MULTILINE)
PATIENCE = 90.0  # seconds


def try_login(user: str, target: dict[str, Any]) -> dict[str, Any] | None:
    """None if the login worked, else where it went and ssh's own words."""
    where = destination(target)
    argv = ["runuser", "-u", user, "--", "ssh", *(word for option in OPTIONS.split() for word in ("-o", option))]
    argv += ["-p", str(target["port"]), "-l", user, where, "true"]
    deadline = time.monotonic() + PATIENCE
    while True:
        # No AnsibleModule is in these threads. pylint: disable-next=ansible-bad-function
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode == 0:
            return None
        if not BUSY.search(done.stderr) or time.monotonic() > deadline:
            break
        time.sleep(random.uniform(0.2, 2.0))  # so that not all come again at once
    lines = [line.strip() for line in done.stderr.splitlines() if not line.startswith("Warning:")]
    said = " ".join(lines) or f"rc {done.returncode}"
    return {"user": user, "target": target, "where": where, "said": said}


def try_all(name: str, users: list[str], targets: list[dict[str, Any]]) -> dict[str, Any]:
    """Each user to each target. What fails is a note where the target is not `required`."""
    pairs = [(user, target) for user in users for target in targets]
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = [result for result in pool.map(lambda pair: try_login(*pair), pairs) if result]
    lines: dict[bool, list[str]] = {True: [], False: []}
    for result in results:
        target = result["target"]
        way = f"{result['user']}: {name} -> {target['name']} ({result['where']} port {target['port']})"
        lines[target["required"]].append(f"{way}: {result['said']}")
    return {"tried": len(pairs), "failures": lines[True], "notes": lines[False]}
