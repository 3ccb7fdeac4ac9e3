# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that call each other, for real, on addresses of the loopback interface."""

from __future__ import annotations

import os
import subprocess
from typing import Optional

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_ports as ports

ADDRESSES = {"n1": "127.0.7.1", "n2": "127.0.7.2", "n3": "127.0.7.3"}


def ring(port: str, limit: str, silent: Optional[str] = None) -> str:
    """All nodes' output; `silent` does not take part, like a node behind a firewall that rejects."""
    words = ["sh", "-c", ports.SCRIPT, "ports", port, limit, *(f"{name}={ip}" for name, ip in ADDRESSES.items())]
    running = [
        subprocess.Popen(words, env={**os.environ, "SLURMD_NODENAME": name}, stdout=subprocess.PIPE, text=True)
        for name in ADDRESSES
        if name != silent
    ]
    return "".join(process.communicate(timeout=60)[0] for process in running)


def test_all_reach_each_other() -> None:
    text = ring("47611", "30")
    assert sorted(line.split("\t")[1:4] for line in text.splitlines()) == [
        ["n1", "n2", "ok"],
        ["n2", "n3", "ok"],
        ["n3", "n1", "ok"],
    ]
    assert ports.complaints(text, ADDRESSES) == []


def test_node_that_nobody_reaches_is_named() -> None:
    found = ports.complaints(ring("47612", "2", silent="n3"), ADDRESSES)
    assert len(found) == 1
    assert found[0].startswith(f"n2 does not reach n3 (127.0.7.3) at TCP port {ports.PORT}: Connection refused")
