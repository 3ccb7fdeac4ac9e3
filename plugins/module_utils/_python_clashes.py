# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What outside of an environment gets into its programs: library paths, other NCCLs, conda, packages of users.

Private to this collection. Each finding is one line that names the file and what it does.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable

from ._pci import read

Run = Callable[[list[str]], tuple[int, str, str]]
# Where shells and services take variables from.
SETTINGS = ("etc/environment", "etc/profile", "etc/bash.bashrc", "etc/profile.d/*.sh", "etc/environment.d/*.conf")
LIBRARY = re.compile(r"lib(nccl|cudart|cudnn|cublas|torch)[A-Za-z_]*\.so")
ASSIGNS = re.compile(
    r"^\s*(export\s+|declare\s+-x\s+)?(?P<name>LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PYTHONHOME)=(?P<value>.*)$"
)
# Packages of a user that would hide those of an environment that is not isolated from them.
HIDING = ("torch", "nvidia", "numpy", "triton", "tensorflow", "jax")
CONDA = re.compile(r"/(\w*conda\d*|\w*mamba\w*|miniforge\d*)(/|$)")


def _settings(root: str) -> Iterable[tuple[str, str, str]]:
    """(file, variable, value) of assignments in files that every login reads."""
    for pattern in SETTINGS:
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            for line in (read(path) or "").splitlines():
                match = ASSIGNS.match(line)
                if match:
                    yield "/" + os.path.relpath(path, root), match["name"], match["value"].strip("\"' ")


def _libraries(root: str, folder: str) -> list[str]:
    """Libraries in a folder that an environment brings itself."""
    try:
        names = os.listdir(os.path.join(root, folder.lstrip("/")))
    except OSError:
        return []
    return sorted({match[0] for name in names if (match := LIBRARY.match(name))})


def variables(root: str, login: dict[str, str]) -> list[str]:
    """Variables by which programs load other libraries or modules; `login`: the variables of a login shell."""
    found = []
    told = {name: f"{path} sets {name}={value}" for path, name, value in _settings(root)}
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME"):
        if not login.get(name) and name not in told:
            continue
        value = login.get(name, "")
        text = told.get(name) or f"a login shell has {name}={value}"
        hides = [f"{library} in {part}" for part in value.split(":") if part for library in _libraries(root, part)]
        found.append(text + (f", which puts {', '.join(hides)} before those of the environments" if hides else ""))
    return found


def nccl(root: str, cache: str) -> list[str]:
    """NCCL that the loader knows; `cache`: what `ldconfig -p` prints. Harmless until something loads it first."""
    paths = sorted(set(re.findall(r"libnccl\.so\S* .*=> (\S+)", cache)))
    others = sorted(
        path
        for pattern in ("opt/*/*nccl*/**/libnccl.so*", "opt/hpcx*/**/libnccl.so*", "usr/local/lib/libnccl.so*")
        for path in glob.glob(os.path.join(root, pattern), recursive=True)
    )
    found = [*paths, *("/" + os.path.relpath(path, root) for path in others if not os.path.islink(path))]
    return [f"NCCL outside of the environments: {path}" for path in dict.fromkeys(found)]


def conda(root: str, login: dict[str, str]) -> list[str]:
    """conda whose base gets into login shells."""
    first = login.get("CONDA_PREFIX") or next((p for p in login.get("PATH", "").split(":") if CONDA.search(p)), "")
    if first:
        return [f"a login shell has conda's {first} active: its python3 and its libraries come first"]
    starts = sorted(glob.glob(os.path.join(root, "etc/profile.d/*conda*.sh")))
    return [f"/{os.path.relpath(path, root)} starts conda in login shells" for path in starts]


def user_packages(root: str) -> list[str]:
    """Packages under ~/.local that hide the environment's in a Python that takes users' packages."""
    found = []
    for home in ("root", "home/*"):
        for site in sorted(glob.glob(os.path.join(root, home, ".local/lib/python3*/site-packages"))):
            hiding = sorted(name for name in HIDING if os.path.isdir(os.path.join(site, name)))
            if hiding:
                found.append(f"/{os.path.relpath(site, root)} has {', '.join(hiding)} of its own")
    return found


def login_environment(run: Run) -> dict[str, str]:
    """Variables of a fresh login shell of root; empty where there is none."""
    code, out, _err = run(["env", "-i", "HOME=/root", "USER=root", "TERM=dumb", "bash", "-lc", "env -0"])
    return dict(entry.split("=", 1) for entry in out.split("\0") if "=" in entry) if code == 0 else {}


def clashes(root: str, run: Run) -> list[str]:
    login = login_environment(run)
    _code, cache, _err = run(["ldconfig", "-p"])
    return [*variables(root, login), *nccl(root, cache), *conda(root, login), *user_packages(root)]
