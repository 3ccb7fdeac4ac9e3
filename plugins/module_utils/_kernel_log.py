# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xid messages of NVIDIA's driver since the boot, from the journal or the kernel's own buffer. Private."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from ._command import run

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]+:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (?P<number>\d+),?\s*(?P<text>.*)"
)
_LINES = 2000  # newest ones; a GPU that floods the log says the same again and again


@dataclass
class Xid:
    """One kind of message about one GPU."""

    pci: str  # 0000:1b:00, lower case, no function
    number: int
    text: str  # of the last one
    count: int
    last: float  # seconds since 1970; 0 where the log does not tell


def _entries(lines: Iterable[tuple[float, str]], since: float) -> list[Xid]:
    found: dict[tuple[str, int], Xid] = {}
    for when, line in lines:
        match = _XID.search(line)
        if not match or (when and when <= since):
            continue
        domain, rest = match["pci"].lower().split(":", 1)
        key = (f"{int(domain, 16):04x}:{rest}", int(match["number"]))
        text = re.sub(r"^(pid='?[^,]*'?, )?(name=[^,]*, )?", "", match["text"]).strip()[:120]
        entry = found.setdefault(key, Xid(*key, text, 0, when))
        entry.count += 1
        if when >= entry.last:
            entry.last, entry.text = when, text
    return list(found.values())


def _journal(timeout: float) -> Optional[list[tuple[float, str]]]:
    """Lines with their time; null where there is no journal to ask."""
    tool = shutil.which("journalctl")
    if not tool:
        return None
    wanted = ["--dmesg", "--boot", "--no-pager", "--quiet", "--output=short-unix"]
    answer = run([tool, *wanted, f"--lines={_LINES}", "--grep=NVRM: Xid"], timeout)
    if answer.rc not in (0, 1):  # 1: no line is like that
        return None
    found = []
    for line in answer.stdout.decode("utf-8", "replace").splitlines():
        stamp, _space, text = line.partition(" ")
        found.append((float(stamp) if re.fullmatch(r"\d+\.\d+", stamp) else 0.0, text))
    return found


def _buffer(path: str) -> list[tuple[float, str]]:
    """The kernel's ring buffer: records "priority,sequence,microseconds,-;text"."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    found = []
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(handle, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the next record was overwritten meanwhile
                continue
            if not record:
                break
            head, _semicolon, text = record.decode("utf-8", "replace").partition(";")
            parts = head.split(",")
            when = boot + int(parts[2]) / 1e6 if len(parts) > 2 and parts[2].isdigit() else 0.0
            found.append((when, text.split("\n", 1)[0]))
    finally:
        os.close(handle)
    return found


def xids(since: float = 0.0, path: str = "", timeout: float = 15.0, kmsg: str = "/dev/kmsg") -> list[Xid]:
    """Messages after ``since`` (seconds since 1970). ``path`` names a file of log lines to read instead of the system.

    Raises OSError where neither journal nor buffer can be read.
    """
    if path:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return _entries(((0.0, line) for line in handle), since)
    lines = _journal(timeout)
    if not lines and (lines is None or os.access(kmsg, os.R_OK)):
        # A container has no kernel messages in its journal, and a journal may be switched off.
        lines = _buffer(kmsg)
    return _entries(lines or [], since)
