# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated GPUs for a lab node: what to give to podman, and faults that can be set while the node runs.

A node's part of the simulation is one directory, `node_dir/gpu`, that the node sees read-only under SEEN_AS:

    gpu.conf     what our libnvidia-ml.so.1 answers from
    devices/     the PCI devices
    bus/         links to them; the node also sees it as /sys/bus/pci/devices
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from . import library, pci
from .library import PACKAGES, build_library
from .profiles import AMPERE, HOPPER, PROFILES, Profile

__all__ = ["FAULTS", "PACKAGES", "PROFILES", "Profile", "Simulation", "build_library", "fault", "prepare"]

SEEN_AS = "/etc/gpuops-lab"
LOADER = "/usr/local/lib"  # where the loader looks before the directories of Debian's packages
NVIDIA_MAJOR, CONTROL_MINOR = 195, 255

_SHAPES = {
    "gpus": (r"\d+(,\d+)*", "GPU positions such as 3 or 0,3"),
    "amounts": (r"\d+:\d+(,\d+:\d+)*", "GPU:NUMBER such as 3:8 or 0:1,3:8"),
    "version": (r"\d+(\.\d+)+", "a version such as 535.216.03"),
    "flag": (r"[01]", "0 or 1"),
    "seconds": (r"\d+", "seconds"),
}


@dataclass(frozen=True)
class Fault:
    """Something that can be wrong: the form of its value, what it means, and which GPUs can have it."""

    shape: str
    meaning: str
    possible: Callable[[Profile], bool] = lambda profile: True


def _remaps_rows(profile: Profile) -> bool:
    return profile.architecture >= AMPERE


# GPUs are counted by their position on the board, which does not change when another one is missing.
FAULTS: dict[str, Fault] = {
    "gpu_lost": Fault("gpus", "fell off the bus while the driver was loaded"),
    "gpu_missing": Fault("gpus", "on the bus, but the driver did not bring it up"),
    "unknown_error": Fault("gpus", "the driver answers for it, but its readings fail"),
    "ecc_correctable": Fault("amounts", "corrected memory errors since the last reset"),
    "ecc_uncorrectable": Fault("amounts", "uncorrected memory errors since the last reset"),
    "ecc_uncorrectable_lifetime": Fault("amounts", "uncorrected memory errors before the last reset"),
    "row_remap_pending": Fault("gpus", "a row waits for a reset to be remapped", _remaps_rows),
    "row_remap_failed": Fault("gpus", "a bank has no spare rows left", _remaps_rows),
    "retired_pages_pending": Fault("amounts", "pages wait to be retired", lambda profile: not _remaps_rows(profile)),
    "inforom_corrupt": Fault("gpus", "the infoROM's checksum is wrong"),
    "nvlink_inactive": Fault("amounts", "how many of its NVLinks are down", lambda profile: profile.nvlink_links > 0),
    "fabric_not_ready": Fault(
        "gpus",
        "the fabric manager has not registered it",
        lambda profile: profile.architecture >= HOPPER and profile.nvswitch_id != 0,
    ),
    "mig_pending": Fault("gpus", "a change of MIG mode waits for a reset", lambda profile: profile.mig),
    "thermal_slowdown": Fault("gpus", "too hot"),
    "power_brake": Fault("gpus", "slowed down by the server's power supply"),
    "pcie_width": Fault("amounts", "the width its link has now"),
    "pcie_generation_now": Fault("amounts", "the generation its link has now"),
    "driver": Fault("version", "of the loaded module, instead of the one that the packages brought"),
    "mismatch": Fault("flag", "the loaded module has another version than the packages"),
    "not_loaded": Fault("flag", "the packages are there, the module is not loaded"),
    "hang": Fault("seconds", "how long nvidia-smi takes to begin"),
}


@dataclass(frozen=True)
class Simulation:
    """What a node needs: options of `podman run`, then commands that run in it as root after each creation."""

    podman_args: list[str]
    setup: list[list[str]] = field(default_factory=list)


def prepare(
    profile: str, suite: str, node_dir: Path, cache: Path, *, cpus: int | None = None, nics: bool = False
) -> Simulation:
    """Write a node's simulation into `node_dir` and build the libraries, once for all nodes, in `cache`.

    `cpus`: how many CPUs the node has (default: this machine's). They are shared out to the profile's NUMA nodes, so
    what NVML says of affinity names CPUs that the node really has, and Slurm accepts it. `nics`: put the profile's
    InfiniBand adapters on the PCI bus, too. The libraries serve every `suite`.
    """
    if profile not in PROFILES:
        raise ValueError(f"GPU profile {profile!r}: expected one of {', '.join(PROFILES)}")
    directory = node_dir / "gpu"
    directory.mkdir(parents=True, exist_ok=True)
    origin = {
        "profile": profile,
        "cpus": str(cpus or os.cpu_count() or 1),
        "nics": str(int(nics)),
        "node": "/".join(node_dir.parts[-2:]),
    }
    _write(directory, origin, {})
    files = _device_files(directory, PROFILES[profile].count)
    (directory / "tmpfiles.conf").write_text(tmpfiles(PROFILES[profile].count))
    built = build_library(cache)
    mounts = {
        **{str(built / name): f"{LOADER}/{name}" for name in library.LIBRARIES},
        str(directory): SEEN_AS,
        f"{directory}/bus": "/sys/bus/pci/devices",
        f"{directory}/tmpfiles.conf": "/etc/tmpfiles.d/gpuops-lab.conf",
    }
    words = [word for source, target in mounts.items() for word in ("-v", f"{source}:{target}:ro")]
    for place in ("/proc/driver", "/sys/bus/pci/drivers"):  # where the loaded module shows; the library writes there
        words += ["--mount", f"type=tmpfs,destination={place},notmpcopyup"]
    for file in files:
        words += ["--device", f"{file}:/dev/{file.name}:rwm"]
    return Simulation(words, [["ldconfig"]])


def fault(node_dir: Path, settings: Mapping[str, str]) -> None:
    """Make exactly these faults true of a node, from its next nvidia-smi on; without settings it is healthy again."""
    directory = node_dir / "gpu"
    origin = dict(line.split("=", 1) for line in (directory / "gpu.conf").read_text().splitlines() if "=" in line)
    if "profile" not in origin:
        raise ValueError(f"{directory}/gpu.conf names no profile")
    _write(
        directory,
        {key: origin[key] for key in ("profile", "cpus", "nics", "node")},
        check(PROFILES[origin["profile"]], settings),
    )


def check(profile: Profile, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, if each is a fault that this profile can have."""
    for key, value in settings.items():
        if key not in FAULTS:
            raise ValueError(f"fault {key!r}: expected one of {', '.join(FAULTS)}")
        if not FAULTS[key].possible(profile):
            raise ValueError(f"fault {key}: {profile.name} cannot have it")
        pattern, expected = _SHAPES[FAULTS[key].shape]
        if not re.fullmatch(pattern, value):
            raise ValueError(f"fault {key}={value!r}: expected {expected}")
        beyond = [position for position in _positions(key, value) if position >= profile.count]
        if beyond:
            raise ValueError(f"fault {key}={value!r}: there is no GPU {beyond[0]}, the last is {profile.count - 1}")
    return dict(settings)


def _positions(key: str, value: str) -> dict[int, int]:
    """GPU positions that a fault names, each with its amount (1 where it has none)."""
    if FAULTS[key].shape not in ("gpus", "amounts"):
        return {}
    pairs = (item.partition(":") for item in value.split(","))
    return {int(position): int(amount or 1) for position, _, amount in pairs}


def cpu_lists(cpus: int, nodes: int) -> list[str]:
    """CPUs 0 to cpus-1 shared out to NUMA nodes, in the kernel's list format; with too few, nodes share a CPU."""
    lists = []
    for node in range(nodes):
        first, last = node * cpus // nodes, max((node + 1) * cpus // nodes - 1, node * cpus // nodes)
        lists.append(f"{first}-{last}" if last > first else str(first))
    return lists


def configuration(profile: Profile, origin: Mapping[str, str], faults: Mapping[str, str]) -> str:
    """The text of gpu.conf."""
    lines = ["# Written by tests/lab/gpu/simulate.py; read by our libnvidia-ml.so.1 when nvidia-smi starts."]
    lines += [f"{key}={value}" for key, value in origin.items()]
    for item in fields(Profile):
        value = getattr(profile, item.name)
        if isinstance(value, tuple):
            continue
        lines.append(
            f"{item.name}={value:#06x}"
            if item.name.endswith("_id")
            else f"{item.name}={int(value) if isinstance(value, bool) else value}"
        )
    cpus = cpu_lists(int(origin["cpus"]), profile.numa_nodes)
    for position, address in enumerate(profile.addresses):
        digest = hashlib.sha256(f"{origin['node']}/{position}".encode()).digest()
        serial = 1_650_000_000_000 + int.from_bytes(digest[16:20], "big")
        node = profile.numa_node(position)
        lines.append(f"gpu={address} GPU-{uuid.UUID(bytes=digest[:16], version=4)} {serial} {node} {cpus[node]}")
    lines += [f"nvswitch={address}" for address in profile.nvswitches]
    lines += [f"{key}={value}" for key, value in faults.items()]
    return "\n".join(lines) + "\n"


def _write(directory: Path, origin: Mapping[str, str], faults: Mapping[str, str]) -> None:
    profile = PROFILES[origin["profile"]]
    amounts = {key: _positions(key, value) for key, value in faults.items()}
    lists = cpu_lists(int(origin["cpus"]), profile.numa_nodes)
    pci.write(directory, pci.devices(profile, lists, amounts, nics=origin["nics"] == "1"), SEEN_AS)
    new = directory / "gpu.conf.new"
    new.write_text(configuration(profile, origin, faults))
    new.replace(directory / "gpu.conf")


def device_numbers(count: int) -> dict[str, int]:
    """Names and minor numbers of the driver's character devices."""
    return {**{f"nvidia{number}": number for number in range(count)}, "nvidiactl": CONTROL_MINOR}


def tmpfiles(count: int) -> str:
    """The devices for systemd-tmpfiles, which makes them in privileged nodes: there podman does not heed --device."""
    return "".join(
        f"c /dev/{name} 0666 root root - {NVIDIA_MAJOR}:{minor}\n" for name, minor in device_numbers(count).items()
    )


def _device_files(directory: Path, count: int) -> list[Path]:
    """The devices as files, for podman to repeat in the node's /dev at each start."""
    devices = directory.parent / "dev"
    devices.mkdir(exist_ok=True)
    files = []
    for name, minor in device_numbers(count).items():
        path = devices / name
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, minor))
            path.chmod(0o666)
        files.append(path)
    return files
