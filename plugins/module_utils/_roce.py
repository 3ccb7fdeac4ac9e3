# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of an Ethernet interface's RDMA device: the connection manager's traffic class, and congestion control.

Private to this collection. Runs on a node without Ansible too. Files, not programs: configfs for the traffic class (any
RDMA device of Linux), sysfs for congestion control (only the driver of NVIDIA's RDMA stack has it there).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

Run = Callable[..., "tuple[int, str, str]"]
NO_ECN = "the driver has no switch for it in sysfs (that of NVIDIA's RDMA stack has); adapters have it on by default"


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def devices(link: str, sysfs: str = "/sys") -> list[tuple[str, int]]:
    """RDMA devices and ports of an interface: those of its PCI function, and software ones that name it as parent."""
    found = []
    for device in sorted(Path(sysfs, "class/infiniband").glob("*")):
        ports = sorted(int(p.name) for p in (device / "ports").glob("*") if p.name.isdigit())
        own = device / "device/net" / link
        if read(device / "parent") == link:
            found += [(device.name, port) for port in ports]
        elif own.exists():
            index = int(read(own / "dev_port") or 0) + 1
            found += [(device.name, port) for port in ports if len(ports) == 1 or port == index]
    return found


def tos_file(device: str, port: int, configfs: str) -> Path:
    return Path(configfs, "rdma_cm", device, "ports", str(port), "default_roce_tos")


def read_tos(device: str, port: int, configfs: str = "/sys/kernel/config") -> int:
    """The traffic class of connections that name none: 0 as long as nobody has set another."""
    return int(read(tos_file(device, port, configfs)) or 0)


def write_tos(device: str, port: int, value: int, run: Run, configfs: str = "/sys/kernel/config") -> str:
    """Sets it; returns what refused in its own words, else nothing."""
    root = Path(configfs, "rdma_cm")
    if not root.is_dir():
        for argv in (("modprobe", "rdma_cm"), ("mount", "-t", "configfs", "configfs", configfs)):
            if root.is_dir():
                break
            rc, _out, err = run(*argv)
            if rc != 0:
                return err.strip() or f"{argv[0]}: exit status {rc}"
    try:
        (root / device).mkdir(exist_ok=True)
        tos_file(device, port, configfs).write_text(f"{value}\n")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def get_cm(link: str, sysfs: str = "/sys", configfs: str = "/sys/kernel/config") -> tuple[dict[str, Any], str]:
    """The traffic class of an interface's ports, and why there is none."""
    values = sorted({read_tos(device, port, configfs) for device, port in devices(link, sysfs)})
    if not values:
        return {}, "no RDMA device of this interface is there (its driver's RDMA module is not loaded)"
    # Ports that differ (they do not share an interface, so there is hardly more than one) differ from what is wanted.
    return {"tos": values[0] if len(values) == 1 else -1}, ""


def put_cm(link: str, values: dict[str, Any], run: Run) -> str:
    errors = [write_tos(device, port, values["tos"], run) for device, port in devices(link)]
    return "; ".join(error for error in errors if error)


def ecn_files(link: str, priority: int, sysfs: str) -> list[Path]:
    """Notification point and reaction point: the receiver answers marked packets, the sender slows down."""
    base = Path(sysfs, "class/net", link, "ecn")
    return [base / "roce_np/enable" / str(priority), base / "roce_rp/enable" / str(priority)]


def get_ecn(link: str, sysfs: str = "/sys") -> tuple[dict[str, Any], str]:
    """For each priority whether both ends of congestion control are on."""
    if not Path(sysfs, "class/net", link, "ecn").is_dir():
        return {}, NO_ECN
    return {str(p): all(read(file) == "1" for file in ecn_files(link, p, sysfs)) for p in range(8)}, ""


def put_ecn(link: str, values: dict[str, Any], sysfs: str = "/sys") -> str:
    errors = []
    for priority, on in values.items():
        for file in ecn_files(link, int(priority), sysfs):
            try:
                file.write_text("1\n" if on else "0\n")
            except OSError as error:
                errors.append(f"{file}: {error.strerror}")
    return "; ".join(errors)
