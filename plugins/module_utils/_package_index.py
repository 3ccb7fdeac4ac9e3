# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether apt can be used as it is: its package lists, and what dpkg was interrupted in. Private to this collection."""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

TRIES = 3  # a mirror that is being updated, a network that is still coming up
Run = Callable[..., tuple[int, str, str]]


@dataclass
class Places:
    """Where apt keeps its files."""

    lists: str = "/var/lib/apt/lists"
    stamp: str = "/var/lib/apt/periodic/update-success-stamp"
    sources: str = "/etc/apt/sources.list"
    journal: str = "/var/lib/dpkg/updates"


def sources(places: Places) -> list[str]:
    """Files of apt's sources."""
    folder = glob.escape(f"{places.sources}.d")
    files = [places.sources, *sorted(glob.glob(f"{folder}/*.list") + glob.glob(f"{folder}/*.sources"))]
    return [path for path in files if os.path.exists(path)]


def addresses(path: str) -> list[str]:
    """Addresses of the repositories that a file of sources names."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [re.match(r"\s*deb\s+(?:\[[^\]]*\]\s*)?(\S+)|URIs:(.*)", line) for line in file]
    return [address for line in lines if line for address in (line.group(1) or line.group(2)).split()]


def remote(path: str) -> bool:
    """Whether a file of sources names a repository that is not on this host's own disk."""
    return any(re.match(r"(https?|ftp|mirror|tor|s3)\b[+\w]*:/", address) for address in addresses(path))


def present(places: Places) -> list[str]:
    """Names of the lists that are there, local repositories' included."""
    return [os.path.basename(path) for path in glob.glob(f"{glob.escape(places.lists)}/*Packages*")]


def empty(places: Places) -> bool:
    """Whether there are no lists. Those of a local repository, whose names begin with _, do not stand for others."""
    names = present(places)
    if any(not name.startswith("_") for name in names):
        return False
    return not names or any(remote(path) for path in sources(places))


def fetched(places: Places) -> float:
    """When the lists were fetched last; 0 where there are none."""
    return max((os.stat(path).st_mtime for path in (places.lists, places.stamp) if os.path.exists(path)), default=0.0)


def keys(path: str) -> list[str]:
    """Files of keys that a file of sources names."""
    with open(path, encoding="utf-8", errors="replace") as file:
        named = re.findall(r"^[^#\n]*\bsigned-by\s*[:=]\s*(/[^\s,\]]+)", file.read(), re.IGNORECASE | re.MULTILINE)
    return [key for key in named if os.path.exists(key)]


def newer_sources(places: Places, since: float) -> dict[str, str]:
    """What came later, by change time: packages and archives bring modification times. Gives the file of sources, or of
    a key that it names, with the file of sources."""
    files = [(name, path) for path in sources(places) for name in (path, *keys(path))]
    return {name: path for name, path in files if os.stat(name).st_ctime > since}


def reason(places: Places, now: float, valid: float, check: bool) -> str:
    """Why the lists have to be fetched; empty where not.

    The date alone says little: images are shipped with empty lists of a fresh date. In check mode only what is missing
    counts, since without lists nothing can be said about a package.
    """
    if empty(places):
        return "there are none"
    if check:
        return ""
    since = fetched(places)
    if now - since > valid:
        return f"they are older than {valid:g} s"
    newer = newer_sources(places, since)
    return f"{next(iter(newer))} is newer" if newer else ""


def locked(words: str) -> str:
    """What apt says of a lock that somebody else holds; empty where it is about something else."""
    found = re.search(r"Could not get lock .*|Unable to (?:acquire|lock) .*|dpkg .*\block(?:ed)? .*", words)
    return found.group() if found else ""


def plain(words: str) -> str:
    """Addresses as apt says them: file:/x for file:///x, and without a password."""
    return re.sub(r"//[^/@\s]*@", "//", words.replace("file:///", "file:/"))


def endurable(places: Places, since: float, words: str) -> bool:
    """Whether the lists that are there do, after what apt says of those that it could not fetch.

    A network that is away leaves old lists that are right. A signature that is wrong is never endured, nor trouble with
    a repository that has come since the lists were fetched, for which there are none.
    """
    if not present(places) or locked(words):
        return False
    if re.search(r"signature|not signed|NO_PUBKEY|GPG error", words, re.IGNORECASE):
        return False
    new = [address for path in newer_sources(places, since).values() for address in addresses(path)]
    return not any(re.search(re.escape(plain(address).rstrip("/")) + r"(?![\w.-])", plain(words)) for address in new)


def interrupted(places: Places) -> bool:
    """Whether dpkg was killed, or its host, before it had noted all that it did. Until that is done apt refuses all."""
    return os.path.isdir(places.journal) and any(name.isdigit() for name in os.listdir(places.journal))


def finish(run_command: Run, lock_timeout: float) -> str:
    """Let dpkg do the rest. Returns its words if somebody else holds its lock.

    It also fails for a package that was cut off while it was unpacked. apt fetches that anew.
    """
    deadline = time.monotonic() + lock_timeout
    environment = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    while True:
        rc, _out, words = run_command(["dpkg", "--configure", "--pending"], environ_update=environment)
        if rc == 0 or not locked(words):
            return ""
        if time.monotonic() > deadline:
            return words.strip()
        time.sleep(1)


def update(run_command: Run, lock_timeout: float) -> str:
    """Fetch the lists. Returns apt's words if it could not."""
    deadline = time.monotonic() + lock_timeout
    failures = 0
    environment = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    while True:
        rc, _out, words = run_command(["apt-get", "-q", "update"], environ_update=environment)
        if rc == 0 and "Failed to fetch" not in words:
            return ""
        if locked(words) and time.monotonic() < deadline:
            time.sleep(1)
            continue
        failures += 1
        if failures == TRIES or locked(words):
            return words.strip()
        time.sleep(failures)
