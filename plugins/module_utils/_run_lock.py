# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which run of a playbook works on a host: a record there, and what the control node knows of its own runs. Private.

A record is a dictionary of FIELDS and "taken", the host's seconds since it booted, whatever its clock says.
Records come from hosts and are printed on the control node: `parse` lets only texts that can be printed through.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

FIELDS: dict[str, type] = {
    "user": str,
    "control": str,  # name of the control node
    "machine": str,  # hash of what tells this control node from others
    "boot": str,  # its boot id
    "pid": int,
    "start": str,  # when the process started, as the control node's kernel counts it
    "begin": float,  # seconds since 1970
    "playbook": str,
    "hours": float,  # for how long the record counts
}
LONGEST = 128
INITIAL_NAMESPACE = "pid:[4026531836]"  # the kernel's number of the process ids that the whole machine sees


def parse(record: Any) -> Optional[dict[str, Any]]:
    """A record in the shape above; None for anything else."""
    found: dict[str, Any] = {}
    if not isinstance(record, Mapping):
        return None
    try:
        for name, kind in {**FIELDS, "taken": float}.items():
            found[name] = kind(record[name])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    for name, value in found.items():
        if isinstance(value, str):
            found[name] = "".join(letter for letter in value if letter.isprintable())[:LONGEST]
    return found if found["pid"] > 0 else None


def identity(record: Mapping[str, Any]) -> str:
    """The same for all records of one run."""
    return f"{record['machine']}/{record['boot']}/{record['pid']}/{record['start']}"


# On the host.


def now() -> float:
    """Seconds since the host booted, suspended ones included. Its record lies in /run and does not outlive that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read(path: str) -> Optional[dict[str, Any]]:
    """The record there; None without one. What is no record counts as none: ours are never half written."""
    try:
        return parse(json.loads(Path(path).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return None


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """One process at a time. The file stays: whoever removed it would let two in. Users of the host cannot hold it."""
    file = os.open(f"{os.path.splitext(path)[0]}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def take(
    path: str, run: Mapping[str, Any], *, force: bool = False, gone: str = "", write: bool = True
) -> Optional[dict[str, Any]]:
    """Make `run` the one that works here. Returns the record of another run that counts; None when the host is ours.

    `gone` is the identity of a run that has ended, as its control node knows. Without `write` it only asks.
    """
    with _alone(path) if write else contextlib.nullcontext():
        held, moment = read(path), now()
        if (
            held
            and not force
            and identity(held) not in (identity(run), gone)
            and 0 <= moment - held["taken"] < held["hours"] * 3600
        ):
            return held
        if write:
            # Taken anew by the same run: it began when it did.
            begin = held["begin"] if held and identity(held) == identity(run) else run["begin"]
            Path(f"{path}.new").write_text(json.dumps({**run, "begin": begin, "taken": moment}), encoding="utf-8")
            os.replace(f"{path}.new", path)
        return None


def release(path: str, run: Mapping[str, Any], *, force: bool = False, write: bool = True) -> None:
    """Remove the run's record; that of another run only by force."""
    if not write or not os.path.exists(path):
        return
    with _alone(path):
        held = read(path)
        if force or (held and identity(held) == identity(run)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


# On the control node.


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def control_node() -> dict[str, str]:
    """Fields control, machine and boot of this control node.

    Containers share the machine's boot id and often an image's machine-id, and have process ids of their own: one
    started anew is another control node, which cannot tell whether the runs of the one before it have ended.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    name, boot = platform.node(), _text("/proc/sys/kernel/random/boot_id")
    parts = [_text("/etc/machine-id"), name, namespace, "" if namespace == INITIAL_NAMESPACE else boot]
    return {"control": name, "machine": hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16], "boot": boot}


def started(pid: int) -> str:
    """When a process started, in whatever form; "ended" for one that nobody has waited for; empty when not to be seen.

    From /proc where there is one, since ps counts from the clock and may be a second off the next time.
    """
    if os.path.exists("/proc/self/stat"):
        # After the name, which may hold anything: state is the first field, starttime the 20th (proc(5)).
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return "" if len(fields) < 20 else "ended" if fields[0] in ("Z", "X") else fields[19]
    # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], stdout=subprocess.PIPE, check=False)
    return " ".join(done.stdout.decode(errors="replace").split())


def running(pid: int, start: str) -> bool:
    """Whether the process that started then is still there. Those of other users may be hidden: they count as such."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return started(pid) in ("", start)


def has_ended(record: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether the record's run is one of this control node that is no longer there."""
    if record["machine"] != here["machine"]:
        return False
    return bool(record["boot"] != here["boot"] or not running(record["pid"], record["start"]))


def sentence(record: Mapping[str, Any], moment: float) -> str:
    """Who is at work, since when by this control node's clock, and what to do."""
    try:
        begin, today = time.localtime(record["begin"]), time.localtime(moment)
        since = time.strftime("%H:%M" if begin[:3] == today[:3] else "%Y-%m-%d %H:%M", begin)
    except (OverflowError, ValueError, OSError):
        since = "?"
    return (
        f"{record['user']} on {record['control']} runs {record['playbook']} since {since} (process {record['pid']}); "
        "wait until it has ended, or if it is gone set site_lock_force: true"
    )
