# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role cuda_toolkit reads from a host. Changes nothing but apt's lists where there are none. Private."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _package_index

Run = Callable[..., tuple[int, str, str]]
COMPILERS = ["g++", "cuda-*", "gds-tools-*", "libcu*", "libn*-[0-9]*-[0-9]*", "nsight-*", "nvidia-cuda-toolkit"]
PCI = "for file in vendor device class; do grep -H . /sys/bus/pci/devices/*/$file; done"
SOURCES = r"""
for file in $(grep -rlsE -e 'file:/*var/cuda-repo-' -e '/compute/cuda/repos/' \
    /etc/apt/sources.list /etc/apt/sources.list.d); do
  case $file in
    *.list) ;;
    *.sources) ;;
    *) continue ;;
  esac
  grep -HvE -e '^[[:space:]]*#' -e '^[[:space:]]*$' "$file"
done
exit 0
"""


class Trouble(Exception):
    """A tool did not answer."""


@dataclass
class Places:
    """Where things lie on a host."""

    root: str = "/"

    def path(self, absolute: str) -> str:
        return os.path.join(self.root, absolute.lstrip("/"))

    def found(self, pattern: str) -> list[str]:
        """Paths of what is there, as a host without another root names them."""
        base = self.root.rstrip("/")
        return sorted(path[len(base) :] for path in glob.glob(glob.escape(base) + pattern))


def file_state(path: str) -> str:
    """Mode and checksum of a file; nothing where there is none."""
    try:
        with open(path, "rb") as file:
            return f"{stat.S_IMODE(os.fstat(file.fileno()).st_mode):04o} {hashlib.sha256(file.read()).hexdigest()}"
    except OSError:
        return ""


def link_state(path: str) -> dict[str, Any]:
    """What M(ansible.builtin.stat) says of a link."""
    if not os.path.lexists(path):
        return {"exists": False}
    if not os.path.islink(path):
        return {"exists": True, "islnk": False}
    return {"exists": True, "islnk": True, "lnk_target": os.readlink(path), "lnk_source": os.path.realpath(path)}


def lines(run_command: Run, *argv: str, accepted: tuple[int, ...] = (0,)) -> list[str]:
    """What a tool prints; Trouble for another exit status than those that are accepted."""
    rc, said, err = run_command(list(argv), environ_update={"LC_ALL": "C"}, expand_user_and_vars=False)
    if rc not in accepted:
        raise Trouble(f"{' '.join(argv[:2])} says: {(err or said).strip()}")
    return str(said).splitlines()


def candidate(run_command: Run, lists: _package_index.Places) -> str:
    """Version of the distribution's toolkit. Without package lists nothing could be said."""
    if not glob.glob(f"{glob.escape(lists.lists)}/*_Packages*"):
        said = _package_index.update(run_command, lock_timeout=300)
        if said:
            raise Trouble(f"package lists have to be fetched, since there are none, and apt-get update says: {said}")
    policy = [line.split() for line in lines(run_command, "apt-cache", "policy", "nvidia-cuda-toolkit")]
    return next((words[1] for words in policy if len(words) > 1 and words[0] == "Candidate:"), "")


def repositories(places: Places) -> dict[str, dict[str, str]]:
    """The unpacked local repositories, each with its keyrings."""
    return {
        os.path.basename(folder): {
            os.path.basename(path): file_state(places.path(path))
            for path in places.found(f"{glob.escape(folder)}/cuda-*-keyring.gpg")
        }
        for folder in places.found("/var/cuda-repo-*")
        if os.path.isdir(places.path(folder))
    }


def look(
    run_command: Run, source: str, family: list[str], files: list[str], pci: bool, places: Places
) -> dict[str, Any]:
    show = ("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}|${Package}|${Version}\\n")
    any_status = tuple(range(256))
    local, network = source == "local_repository", source == "network"
    return {
        "dpkg": lines(run_command, *show, *COMPILERS, accepted=(0, 1)),
        "family": lines(run_command, *show, *family, accepted=(0, 1)) if family else [],
        "sources": lines(run_command, "/bin/sh", "-c", SOURCES),
        "link": link_state(places.path("/usr/local/cuda")),
        "pci": lines(run_command, "/bin/sh", "-c", PCI, accepted=any_status) if pci else [],
        "interrupted": bool(places.found("/var/lib/dpkg/updates/[0-9]*")),
        "candidate": candidate(run_command, _package_index.Places()) if source == "distribution" else "",
        "nvcc": places.found("/usr/local/cuda-*/bin/nvcc"),
        "alternatives": lines(run_command, "update-alternatives", "--query", "cuda", accepted=any_status),
        "files": {path: file_state(places.path(path)) for path in files},
        "repositories": repositories(places) if local else {},
        "keyrings": {
            os.path.basename(path): file_state(places.path(path))
            for path in (places.found("/usr/share/keyrings/cuda-*-keyring.gpg") if local else [])
        },
        "owned": lines(
            run_command, "dpkg-query", "--search", "/etc/apt/preferences.d/cuda-repository-pin-600", accepted=(0, 1)
        )
        if local
        else lines(run_command, "dpkg-query", "--listfiles", "cuda-keyring", accepted=(0, 1))
        if network
        else [],
        "source_files": places.found("/etc/apt/sources.list.d/cuda-*") if network else [],
    }
