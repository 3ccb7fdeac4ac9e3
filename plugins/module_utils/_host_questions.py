# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small questions to a host: a file or a tool that may not be there. Private to this collection."""

from __future__ import annotations

from ansible_collections.gpuops.cluster.plugins.module_utils import _command

TIMEOUT = 60.0


def read(path: str) -> str:
    """Text of a file, empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run(*argv: str) -> str:
    """What a command prints; empty where there is no such command."""
    return _command.run(argv, TIMEOUT).stdout.decode("utf-8", "replace").strip()


def tuned_profile() -> str:
    """The profile of a running tuned, which owns governor and huge pages."""
    return read("/etc/tuned/active_profile").strip() if run("systemctl", "is-active", "tuned") == "active" else ""
