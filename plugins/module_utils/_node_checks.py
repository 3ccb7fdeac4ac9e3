# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is looked at on a node. A check takes the settings and yields findings; what it does not know, it does not say.

A check that itself breaks is told apart by who runs it (_node_health). Private to this collection.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from . import _fabric_facts, _gpu_facts, _kernel_log
from ._command import Answer, run
from ._pci import nvidia_functions

if TYPE_CHECKING:
    from collections.abc import Iterator

Settings = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its code, the device it concerns ("" for the host) and one sentence."""

    code: str
    device: str
    detail: str

    def text(self) -> str:
        """As in a drain reason: the code and the device, short enough for squeue and sinfo."""
        return f"{self.code} {self.device}".strip()


Check = Callable[[Settings], "Iterator[Finding]"]

GPU_STATES = ("no_driver", "driver_not_loaded", "driver_mismatch", "no_answer")
# The Xid of a fault in the user's program says nothing about the GPU.
XID_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 69})
_STA_UNSYNC = 0x40  # of adjtimex: the kernel's clock is not disciplined by anybody


def gpus(settings: Settings) -> Iterator[Finding]:
    """Problems of GPUs as gpu_facts tells them, a driver that does not answer, and GPUs that should be there."""
    tool = settings.get("nvidia_smi") or shutil.which("nvidia-smi")
    deadline = time.monotonic() + settings.get("timeout_s", 60)

    def ask(*arguments: str) -> Answer:
        # Before a job the matrix is not asked for: the report alone takes a second on eight GPUs.
        if settings.get("quick") and arguments[:1] == ("topo",):
            return Answer(rc=0)
        return run([str(tool), *arguments], max(deadline - time.monotonic(), 0.1))

    facts = _gpu_facts.gather(
        ask if tool else None, settings.get("sysfs_root", "/sys"), settings.get("proc_root", "/proc")
    )
    if facts["state"] in GPU_STATES and facts["pci_count"]:
        yield Finding(facts["state"], "", facts["reason"])
    for problem in facts["problems"]:
        device = "" if problem["device"] is None else f"GPU {problem['device']}"
        yield Finding(problem["code"], device, problem["detail"])
    expected = settings.get("gpu_count") or 0
    if facts["pci_count"] < expected:
        detail = f"the PCI bus shows {facts['pci_count']} GPUs, node_health_gpu_count is {expected}"
        yield Finding("gpu_count", "", detail)


def xid(settings: Settings) -> Iterator[Finding]:
    """What the driver wrote into the kernel's log since the boot, or since somebody acknowledged it."""
    addresses = sorted(function.address for function in nvidia_functions(settings.get("sysfs_root", "/sys"))[0])
    names = {address.rpartition(".")[0]: f"GPU {index}" for index, address in enumerate(addresses)}
    if not addresses and not settings.get("kernel_log"):
        return
    for entry in _kernel_log.xids(settings.get("acknowledged", 0.0), settings.get("kernel_log", "")):
        if entry.number not in XID_OF_PROGRAMS:
            times = "once" if entry.count == 1 else f"{entry.count} times"
            detail = f"Xid {entry.number} {times} in the kernel log: {entry.text}"
            yield Finding(f"xid_{entry.number}", names.get(entry.pci, f"GPU {entry.pci}"), detail)


def fabric(settings: Settings) -> Iterator[Finding]:
    """Problems of the RDMA devices that the node is declared to need; others may be unused on purpose."""
    wanted = settings.get("rdma_devices", [])
    if not wanted:
        return
    facts = _fabric_facts.gather(settings.get("sysfs_root", "/sys"))
    present = {device["name"] for device in facts["rdma"]}
    for name in wanted:
        if name not in present:
            yield Finding("port_down", name, f"RDMA device {name} is not there")
    for problem in facts["problems"]:
        device = str(problem["device"])
        if re.split(r"[\s:/]", device, maxsplit=1)[0] in wanted:
            yield Finding(problem["code"], device, problem["detail"])


def memlock(settings: Settings) -> Iterator[Finding]:
    """RDMA pins memory: a limit that jobs inherit from slurmd makes it fail in the middle of a training."""
    if not (settings.get("memlock") or settings.get("rdma_devices")):
        return
    proc = settings.get("proc_root", "/proc")
    pids = [
        entry for entry in os.listdir(proc) if entry.isdigit() and _read(f"{proc}/{entry}/comm").strip() == "slurmd"
    ]
    found = [re.search(r"^Max locked memory\s+(\S+)", _read(f"{proc}/{pid}/limits"), re.MULTILINE) for pid in pids]
    limits = [int(match.group(1)) for match in found if match and match.group(1).isdigit()]
    if limits:
        yield Finding(
            "memlock_limited", "slurmd", f"slurmd, and so every job, may lock {min(limits) // 1024} KiB of memory"
        )


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""


def mount(settings: Settings) -> Iterator[Finding]:
    path = settings["path"]
    if not os.path.ismount(path):
        yield Finding("mount_missing", path, f"{path} is not mounted")
    else:
        os.listdir(path)


def disk(settings: Settings) -> Iterator[Finding]:
    path, minimum = settings["path"], settings["minimum"]
    there = os.statvfs(path)
    free = there.f_bavail * there.f_frsize // 2**20
    if there.f_flag & os.ST_RDONLY:
        yield Finding("disk_read_only", path, f"{path} is mounted read-only")
    if free < minimum:
        yield Finding("disk_full", path, f"{free} MiB free on {path}, {minimum} wanted")
    elif there.f_files and not there.f_favail:
        yield Finding("disk_full", path, f"no inodes free on {path}")


class _Timex(ctypes.Structure):
    """The kernel's struct timex; only `modes` and `status` are used, the rest is room."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_byte * 512),
    ]


def clock(settings: Settings) -> Iterator[Finding]:
    """Whether anybody sets the clock. munge refuses credentials from another time: jobs of the node then fail."""
    if not settings.get("clock", True):
        return
    timex = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    if timex.status & _STA_UNSYNC:
        yield Finding("clock_unsynchronized", "", "the clock is set by nobody: no NTP client runs, or it has no server")


def daemons(settings: Settings) -> Iterator[Finding]:
    """Units that are enabled have to be active. Those that are not installed, or switched off, are nobody's need."""
    units = settings.get("daemons", [])
    tool = shutil.which("systemctl")
    if not units or not tool:
        return
    answer = run([tool, "show", "--property=Id,ActiveState,SubState,UnitFileState", *units], 10.0)
    if answer.rc != 0:
        raise RuntimeError(answer.failure or answer.text().strip() or f"systemctl ended with {answer.rc}")
    for block in answer.stdout.decode("utf-8", "replace").split("\n\n"):
        shown = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        enabled = shown.get("UnitFileState", "").startswith("enabled")
        if enabled and shown.get("ActiveState") in {"failed", "inactive"}:
            detail = f"{shown['Id']} is enabled and {shown['ActiveState']} ({shown.get('SubState', '')})"
            yield Finding("daemon_dead", shown["Id"], detail)


CHECKS: dict[str, Check] = {
    "gpus": gpus,
    "xid": xid,
    "fabric": fabric,
    "memlock": memlock,
    "clock": clock,
    "daemons": daemons,
}
# Once for each path of a setting, so that a file server that hangs is told by its path.
PATH_CHECKS: dict[str, tuple[Check, str]] = {"mount": (mount, "mounts"), "disk": (disk, "free_mib")}
