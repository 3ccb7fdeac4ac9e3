# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman with storage, networks and settings of the lab's own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

from . import namespace
from .paths import LabError, run_root


def limits() -> tuple[int, int]:
    """Open files and processes of a container: no more than this process may pass on."""
    files, processes = (resource.getrlimit(which)[1] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    return (min(files, 1048576) if files > 0 else 1048576, min(processes, 32768) if processes > 0 else 32768)


def containers_conf(cache: Path, run: Path, *, systemd: bool) -> str:
    """A host is a whole system whose services confine themselves: podman's AppArmor profile would forbid them that."""
    files, processes = limits()
    return f"""\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
log_driver = "k8s-file"
apparmor_profile = "unconfined"
pids_limit = 0
[engine]
runtime = "crun"
cgroup_manager = "{"systemd" if systemd else "cgroupfs"}"
events_logger = "file"
tmp_dir = "{run}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{cache}/containers/networks"
"""


def storage_conf(cache: Path, run: Path, driver: str) -> str:
    return f"""\
[storage]
driver = "{driver}"
graphroot = "{cache}/containers/{driver}"
runroot = "{run}/storage"
"""


class Podman:
    """One cache directory's podman; knows nothing of labs."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.run_dir = run_root(cache)
        self.space = namespace.Namespace(self.run_dir)

    def open(self) -> None:
        """Make the namespace and the settings, unless they are there."""
        self.space.open()
        directory = self.cache / "containers"
        (directory / "networks").mkdir(parents=True, exist_ok=True)
        driver = self.driver()
        systemd = all(
            map(os.path.exists, ("/run/systemd/system", "/run/dbus/system_bus_socket"))
        )  # crun asks over D-Bus
        (directory / "containers.conf").write_text(containers_conf(self.cache, self.run_dir, systemd=systemd))
        (directory / "storage.conf").write_text(storage_conf(self.cache, self.run_dir, driver))

    def driver(self) -> str:
        """`overlay` where the cache's file system can carry one, else `vfs` (a copy of the image for each host)."""
        if namespace.filesystem(self.cache, Path("/proc/self/mountinfo").read_text()) == "overlay":
            return "vfs"  # podman refuses an overlay on an overlay
        record = self.cache / "containers" / "driver"
        if not record.exists():
            base = self.cache / "containers" / "probe"
            for name in ("lower", "upper", "work", "merged"):
                (base / name).mkdir(parents=True, exist_ok=True)
            options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
            command = f"mount -t overlay -o {options} overlay {base}/merged && umount {base}/merged"
            done = subprocess.run([*self.space.prefix(), "sh", "-c", command], check=False, capture_output=True)
            shutil.rmtree(base)
            record.write_text("vfs" if done.returncode else "overlay")
        return record.read_text()

    def environment(self) -> dict[str, str]:
        directory = self.cache / "containers"
        return {
            **os.environ,
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "PODMAN_IGNORE_CGROUPSV1_WARNING": "true",
        }

    def command(self, *words: str) -> list[str]:
        return [*self.space.prefix(), "podman", *words]

    def call(self, *words: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run podman; a failure becomes a LabError that carries podman's own words."""
        done = subprocess.run(
            self.command(*words), env=self.environment(), check=False, capture_output=True, text=True, input=stdin or ""
        )
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise LabError(f"podman {' '.join(words[:6])} … failed ({done.returncode}): {said}")
        return done

    def containers(self, name: str) -> dict[str, str]:
        """Containers whose name starts with `name`, with their states."""
        found: list[dict[str, Any]] = json.loads(self.call("ps", "--all", "--format", "json").stdout or "[]")
        return {entry["Names"][0]: entry["State"] for entry in found if entry["Names"][0].startswith(name)}

    def close(self) -> None:
        self.space.close()

    def remove(self, *names: str) -> None:
        """Remove containers; a busy one can need a second try."""
        for attempt in range(3):
            if self.call("rm", "-f", "-i", "-t", "1", *names, check=attempt == 2).returncode == 0:
                return

    def image_exists(self, tag: str) -> bool:
        return self.call("image", "exists", tag, check=False).returncode == 0
