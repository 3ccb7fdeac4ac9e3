# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mount namespace of our own in which podman runs.

Container file systems, network namespaces and DNS state live in it, so the machine's own podman, /run and mount table
stay as they are. It is held by a sleeping process and entered through that process, root directory included, which also
works inside a chroot.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from .paths import LabError

CGROUP = Path("/sys/fs/cgroup")
MOUNTS = Path("/proc/self/mountinfo")
# podman, netavark and crun keep state there whatever their settings; the lab has its own.
PRIVATE = ("/run/netns", "/run/containers/networks", "/run/crun")


def mount_points(mountinfo: str) -> dict[str, str]:
    """Mount point -> file system type, of a /proc/PID/mountinfo text. Later mounts win, as in the kernel."""
    points = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        points[left.split()[4]] = right.split()[0]
    return points


def filesystem(path: Path, mountinfo: str) -> str | None:
    """The type of the file system that a path lies on; None where that is mounted outside our root (a chroot)."""
    points = mount_points(mountinfo)
    return next((points[str(place)] for place in (path, *path.parents) if str(place) in points), None)


def cgroup_commands(mounts: dict[str, str], own_cgroups: str) -> list[str]:
    """Shell commands that leave one complete cgroup version under /sys/fs/cgroup.

    A hybrid machine keeps version 1 (its controllers are bound there). Where nothing is mounted, as in a bare chroot,
    it is mounted.
    """
    hierarchies = [line.split(":")[1] for line in own_cgroups.splitlines() if not line.startswith("0:")]
    controllers = [name for name in hierarchies if name and not name.startswith("name=")]
    unified = f"{CGROUP}/unified"
    if mounts.get(str(CGROUP)) == "cgroup2":
        return []
    if mounts.get(str(CGROUP)) == "tmpfs" or any(kind == "cgroup" for kind in mounts.values()):
        return [f"umount {unified}"] if unified in mounts else []
    if not controllers:
        return [f"mount -t cgroup2 cgroup2 {CGROUP}"]
    commands = [f"mount -t tmpfs -o mode=755 tmpfs {CGROUP}"]
    for name in hierarchies:
        if name:
            directory = f"{CGROUP}/{name.replace('name=', '')}"
            option = f"none,{name}" if name.startswith("name=") else name
            commands.append(f"mkdir -p {directory} && mount -t cgroup -o {option} cgroup {directory}")
    if not any(name == "name=systemd" for name in hierarchies):
        commands.append(f"mkdir -p {CGROUP}/systemd && mount -t cgroup -o none,name=systemd cgroup {CGROUP}/systemd")
    return commands


# Prints the mount and inode that / is here, and at the true root of our mount namespace, where entering it leads.
ROOTS = """\
import ctypes, os
def root():
    number = os.open("/", os.O_RDONLY)
    with open(os.open(str(number), os.O_RDONLY, dir_fd=infos)) as info:
        mount = next(line.split()[1] for line in info if line.startswith("mnt_id"))
    return f"{mount}:{os.fstat(number).st_ino}"
infos, space = os.open("/proc/self/fdinfo", os.O_RDONLY), os.open("/proc/self/ns/mnt", os.O_RDONLY)
here = root()
print(here, root() if ctypes.CDLL(None).setns(space, 0) == 0 else here)
"""


def in_chroot() -> bool:
    """True when our root directory is not the root of our mount namespace."""
    done = subprocess.run([sys.executable, "-c", ROOTS], check=False, capture_output=True, text=True)
    return len(set(done.stdout.split())) == 2


def cgroup_removal(run: Path, own_cgroups: str) -> str:
    """Shell commands that remove podman's empty cgroups. Hierarchies that a privileged systemd added go with them."""
    names = [line.split(":")[1] for line in own_cgroups.splitlines() if not line.startswith("0:")]
    lines = [f"mkdir -p {run}/cgroup", "clean() { find $1/libpod_parent -depth -type d -exec rmdir {} +; }"]
    for name in names:
        option = f"none,{name}" if name.startswith("name=") else name
        lines.append(f"mount -t cgroup -o {option} cgroup {run}/cgroup && clean {run}/cgroup; umount {run}/cgroup")
    return "\n".join([*lines, f"[ -e {CGROUP}/cgroup.procs ] && clean {CGROUP}", "true"])


def setup_script(run: Path, mounts: dict[str, str], own_cgroups: str, *, chroot: bool) -> str:
    """What the holder runs, in a mount namespace that still shares its mounts' changes, before it sleeps."""
    lines = ["set -e", *cgroup_commands(mounts, own_cgroups)]
    lines += [f"mkdir -p {directory} && mount -t tmpfs -o mode=755 tmpfs {directory}" for directory in PRIVATE]
    lines += ["mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"]
    lines += [f"echo ready > {run}/ready", "exec sleep infinity"]
    inner = "\n".join(lines)
    if not chroot:
        return f"set -e\nmount --make-rslave /\n{inner}"
    # A namespace is entered at its true root, so our root directory must become that. By way of the present root,
    # where entering one's own namespace leads, a bind mount of the directory takes the root's place.
    own = "nsenter --mount=/proc/self/ns/mnt"
    inner = f"umount -l {run}/old\n{inner}"
    pivot = f"pivot_root . .{run}/old && exec chroot . sh -c {shlex.quote(inner)}"
    return f"""\
set -e
{own} -- mount --make-rslave /
mkdir -p {run}/root {run}/old
mount --rbind / {run}/root
cd {run}/root
exec {own} --wd=. -- sh -c {shlex.quote(pivot)}"""


def _started(pid: int) -> str | None:
    """Start time of a process: tells a process from a later one with the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


class Namespace:
    def __init__(self, run: Path) -> None:
        self.run = run
        self.record = run / "holder"

    def _recorded(self) -> tuple[int, str, str] | None:
        with contextlib.suppress(OSError, ValueError):
            pid, start, space = self.record.read_text().split()
            return int(pid), start, space
        return None

    def holder(self) -> int | None:
        """A living process of the namespace: its holder, or where that was killed, one that containers left in it."""
        recorded = self._recorded()
        if not recorded:
            return None
        pid, start, space = recorded
        if _started(pid) == start and _namespace(pid) == space:  # a killed process that nobody reaped has none
            return pid
        return next(
            (int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _namespace(int(entry.name)) == space), None
        )

    def open(self) -> None:
        """Make the namespace unless it is there. Without it nothing runs: files of the last one are stale."""
        if self.holder():
            return
        self._wipe()
        self.run.mkdir(parents=True)
        ready = self.run / "ready"
        mounts = mount_points(MOUNTS.read_text())
        own = Path("/proc/self/cgroup").read_text()
        script = setup_script(self.run, mounts, own, chroot=in_chroot())
        log = self.run / "holder.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
            )  # fmt: skip
        while not ready.exists():
            if process.poll() is not None:
                raise LabError(
                    f"cannot make a mount namespace (a container without privileges?): {log.read_text().strip()}"
                )
            time.sleep(0.02)
        self.record.write_text(f"{process.pid} {_started(process.pid)} {_namespace(process.pid)}\n")

    def close(self) -> None:
        """End every process of the namespace, and with them all its mounts."""
        removal = cgroup_removal(self.run, Path("/proc/self/cgroup").read_text())
        subprocess.run([*self.prefix(), "sh", "-c", removal], check=False, capture_output=True)
        while pid := self.holder():
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            while _namespace(pid):
                time.sleep(0.01)
        self._wipe()
        for directory in (*PRIVATE, "/run/containers"):
            with contextlib.suppress(OSError):
                os.rmdir(directory)

    def _wipe(self) -> None:
        """Remove the run directory; never through a mount, which could be the whole machine's root."""
        mounted = [point for point in mount_points(MOUNTS.read_text()) if point.startswith(f"{self.run}/")]
        if mounted:
            raise LabError(f"{mounted[0]} is still mounted; type: umount {mounted[0]}")
        shutil.rmtree(self.run, ignore_errors=True)

    def prefix(self) -> list[str]:
        """Words to put before a command that shall run inside."""
        pid = self.holder()
        if not pid:
            raise LabError("no lab is up")
        return ["nsenter", f"--mount=/proc/{pid}/ns/mnt", f"--root=/proc/{pid}/root", f"--wd=/proc/{pid}/root", "--"]
