# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An nvidia-smi that replays recordings: as a function for most tests, as a program where a process matters."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._command import Answer
from ansible_collections.gpuops.cluster.plugins.module_utils._gpu_facts import gather

NOWHERE = "/nonexistent"


def answering(report: bytes = b"", topo: bytes = b"", listing: bytes = b"", rc: int = 0, stderr: bytes = b"") -> Any:
    """What gpu_facts asks in place of nvidia-smi. What is not given is answered as by a tool that lacks it."""
    answers = {"-q": report, "topo": topo, "-L": listing}

    def ask(*arguments: str) -> Answer:
        said = answers[arguments[0]]
        if arguments[0] == "-q":
            return Answer(rc=rc, stdout=said, stderr=stderr)
        return Answer(rc=0, stdout=said) if said else Answer(rc=255, stdout=b"ERROR: no such option")

    return ask


def facts_of(
    report: bytes = b"", sysfs_root: str = NOWHERE, proc_root: str = NOWHERE, **answers: Any
) -> dict[str, Any]:
    return gather(answering(report, **answers), sysfs_root, proc_root)


def codes(facts: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(problem["code"], problem["device"]) for problem in facts["problems"]]


def program(folder: Path, report: str = "", topo: str = "", rc: int = 0, before: str = "") -> str:
    """A program that prints these files. ``before`` is shell that it runs first, such as a sleep."""
    path = folder / "nvidia-smi"
    lines = ["#!/bin/sh", before, f'echo "$@" >> {shlex.quote(str(folder / "calls"))}', 'case "$1" in']
    if report:
        lines.append(f"-q) cat {shlex.quote(report)}; exit {rc} ;;")
    if topo:
        lines.append(f"topo) cat {shlex.quote(topo)}; exit 0 ;;")
    lines += ['*) echo "ERROR: no such option"; exit 255 ;;', "esac"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)
