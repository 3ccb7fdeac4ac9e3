# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be tuned on a host, and what its services and its kernel have now. Private to this collection."""

from __future__ import annotations

import glob
import os
import re
import shutil
import struct
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _command
from ansible_collections.gpuops.cluster.plugins.module_utils._host_questions import read, run

TIME_DAEMONS = ("chrony", "systemd-timesyncd", "ntpsec", "ntp", "ntpd", "openntpd", "ptp4l")
CAP_SYS_TIME = 25
ACS_CAPABILITY = 0x000D
ACS_REDIRECT = {2: "ReqRedir", 3: "CmpltRedir", 4: "UpstreamFwd"}  # SrcValid alone redirects nothing
PCI = "/sys/bus/pci/devices"


def limit_refused(name: str, wanted: str) -> str:
    """The kernel's words if root cannot set a limit: PAM may refuse logins over such a limit."""
    answer = _command.run(["prlimit", f"--{name}={wanted}", "true"], 60.0)
    return answer.failure or answer.stderr.decode("utf-8", "replace").strip().rpartition(": ")[2]


def clock(container: str) -> str:
    """Why the clock of this host is not ours to keep."""
    if container:
        return f"clock: this is a container ({container}), the clock is its host's"
    capabilities = re.search(r"(?m)^CapEff:\s*([0-9a-f]+)", read("/proc/self/status"))
    if capabilities and not int(capabilities.group(1), 16) >> CAP_SYS_TIME & 1:
        return "clock: not permitted to set it (no CAP_SYS_TIME)"
    return ""


def grub(container: str) -> str:
    """Why the kernel command line cannot be set here."""
    if container:
        return f"kernel command line: this is a container ({container}), the kernel is its host's"
    if not shutil.which("update-grub", path="/usr/sbin:/sbin:/usr/bin"):
        return "kernel command line: no GRUB here (update-grub is missing)"
    return "" if os.path.exists("/boot/grub/grub.cfg") else "kernel command line: GRUB has no /boot/grub/grub.cfg"


def acs_bits(config: bytes) -> list[str]:
    """The active ACS bits in a PCI configuration space that send peer traffic up through the root complex."""
    at = 0x100
    for _unused in range(48):  # more capabilities do not fit; a broken list may run in a circle
        if at < 0x100 or at + 8 > len(config):
            break
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return [name for bit, name in ACS_REDIRECT.items() if control >> bit & 1]
        at = header >> 20
    return []


def bridges_above(devices: list[str]) -> list[str]:
    """PCI addresses of everything between these devices (their paths in sysfs) and the root."""
    address = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
    parents = (os.path.realpath(device).split("/")[:-1] for device in devices)
    return sorted({name for words in parents for name in words if address.fullmatch(name)})


def acs(container: str) -> list[str]:
    """A line on the bridges that redirect traffic between NVIDIA GPUs; nothing with fewer than two GPUs."""
    devices = [path for path in glob.glob(f"{PCI}/*") if read(f"{path}/vendor").strip() == "0x10de"]
    gpus = [path for path in devices if read(f"{path}/class").startswith("0x03")]
    if container or len(gpus) < 2:
        return []
    redirecting = []
    for bridge in bridges_above(gpus):
        try:
            with open(f"{PCI}/{bridge}/config", "rb") as file:
                if acs_bits(file.read()):
                    redirecting.append(bridge)
        except OSError:
            continue
    if not redirecting:
        return []
    rest = f" and {len(redirecting) - 4} more" if len(redirecting) > 4 else ""
    return [
        f"PCIe ACS: {', '.join(redirecting[:4])}{rest} send traffic between GPUs through the root complex, "
        "which is slow or hangs; turn ACS off in the firmware"
    ]


def manager_limits() -> list[str]:
    """systemd's own defaults for services: locked memory in bytes or infinity, open files soft and hard."""
    keys = ("DefaultLimitMEMLOCK", "DefaultLimitNOFILESoft", "DefaultLimitNOFILE")
    lines = run("systemctl", "show", *(f"--property={key}" for key in keys)).splitlines()
    shown = dict(line.split("=", 1) for line in lines if "=" in line)
    return [shown.get(key, "") for key in keys]


def service_limits() -> list[str]:
    """What a service that starts now really gets: locked memory in KiB, open files soft and hard."""
    asked = "ulimit -l; ulimit -Sn; ulimit -Hn"
    return run("systemd-run", "--wait", "--pipe", "--collect", "--quiet", "/bin/sh", "-c", asked).split()


def limits(request: dict[str, Any]) -> dict[str, Any]:
    """Limits as systemd has them for services, and as a service that is started to ask really gets them."""
    memlock, soft, hard = request["memlock"], str(request["nofile_soft"]), str(request["nofile"])
    wanted = ["infinity" if memlock == "unlimited" else str(int(memlock) * 1024), soft, hard]
    names = (("memlock", memlock, "memlock"), ("nofile (soft)", soft, "nofile"), ("nofile", hard, "nofile"))
    had = service_limits()
    differing = [
        {"limit": limit, "text": f"{name} of services is {have}, not {value}"}
        for have, (name, value, limit) in zip(had, names)
        if have != value
    ]
    return {"manager": manager_limits() == wanted, "asked": len(had) == len(names), "differing": differing}


def locked_memory(limits_of_process: str) -> str:
    """What a process may lock, from /proc/PID/limits: unlimited, or KiB; empty where it is not told."""
    found = re.search(r"(?m)^Max locked memory\s+(\S+)\s+(\S+)", limits_of_process)
    if not found:
        return ""
    return found.group(2) if found.group(2) == "unlimited" else str(int(found.group(2)) // 1024)


def job_limits(request: dict[str, Any]) -> str:
    """A line where jobs of Slurm may lock less than wanted: they get what slurmd was started with."""
    pid = run("systemctl", "show", "slurmd.service", "--property=MainPID", "--value")
    have = locked_memory(read(f"/proc/{pid}/limits")) if pid not in ("", "0") else ""
    if have in ("", "unlimited", request["memlock"]):
        return ""
    return (
        f"memlock of Slurm jobs is {have}, not {request['memlock']}, because slurmd was started with it; restart slurmd"
    )


def look(request: dict[str, Any]) -> dict[str, Any]:
    """The whole answer, which the module host_tuning_state documents."""
    container = run("systemd-detect-virt", "--container").replace("none", "")
    problems = ["the role needs root on the host; set become: true"] if os.geteuid() else []
    most = int(read("/proc/sys/fs/nr_open") or 0)
    if most and request["nofile"] > most:
        problems.append(f"host_tuning_nofile is {request['nofile']}, more than this kernel's fs.nr_open ({most})")
    memlock = request["memlock"]
    active = [name for name in TIME_DAEMONS if run("systemctl", "is-active", name) == "active"]
    words = read("/proc/cmdline").split()
    return {
        "problems": problems,
        "refused_limits": {
            "memlock": limit_refused("memlock", memlock if memlock == "unlimited" else str(int(memlock) * 1024)),
            "nofile": limit_refused("nofile", str(request["nofile"])),
        },
        "service_limits": limits(request),
        "job_limits": job_limits(request),
        "time_daemon": active[0] if active else "",
        "clock": clock(container),
        "grub": grub(container),
        "acs": acs(container),
        "parameters_missing": [parameter for parameter in request["parameters"] if parameter not in words],
    }
