# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a virtual environment work at whatever path it lies. Private to this collection.

Installers write the environment's path into the first lines of its programs (torchrun, …) and into `activate`. Here
they are made to ask where they themselves lie. Links are followed first, so that a program that was started through
the link NAME stays in the environment that NAME meant at that moment, whatever it imports or starts later.
"""

from __future__ import annotations

import re
from pathlib import Path

# sh runs the second line and never comes further; for Python the lines are a string that nobody reads.
FIRST_LINES = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
"""
HERE = '$(cd -- "$(dirname -- "${BASH_SOURCE:-$0}")/.." && pwd -P)'

# Python itself takes the path by which it was started, so the link, for its own. Every start of it imports this.
STAY = '''\
"""Written by gpuops.cluster: this process stays in its environment when the link that it was started by is switched."""

import os
import sys

_home = os.path.realpath(sys.prefix)
if _home != sys.prefix:
    _inside = sys.prefix + os.sep
    _resolve = lambda path: os.path.join(_home, path[len(_inside) :]) if path.startswith(_inside) else path
    sys.path[:] = [_resolve(path) for path in sys.path]
    sys.executable = _resolve(sys.executable)
    sys.prefix = sys.exec_prefix = _home
'''


def relocatable(program: bytes, home: str) -> bytes:
    """A program's text without the path of its environment `home`; any other text as it is."""
    # Named as the interpreter that the environment was made with.
    python = rb"[\"']?" + re.escape(home.encode()) + rb"/bin/[^\s\"']+[\"']?"
    short = rb"\A#!" + python + rb"[ \t]*\n"
    # What installers write where the path is too long for a first line, or holds spaces.
    long = rb"\A#!/bin/sh\n'''exec' " + python + rb" [^\n]*\n' '''\n"
    return re.sub(rb"(" + short + rb"|" + long + rb")", lambda _match: FIRST_LINES, program)


def make_relocatable(home: Path) -> None:
    """Rewrite the programs of the environment at `home`; doing it again changes nothing."""
    for site in home.glob("lib/python3*/site-packages"):
        (site / "_gpuops_stay.py").write_text(STAY)
        (site / "_gpuops_stay.pth").write_text("import _gpuops_stay\n")
    for path in sorted((home / "bin").iterdir()):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as stream:
            if stream.read(2) != b"#!" and path.name != "activate":
                continue  # a binary, such as uv
        text = path.read_bytes()
        if path.name == "activate":  # for bash and its like; those of other shells keep the path
            changed = text.replace(str(home).encode(), HERE.encode())
        else:
            changed = relocatable(text, str(home))
        if changed != text:
            path.write_bytes(changed)  # in place, so that it stays executable
