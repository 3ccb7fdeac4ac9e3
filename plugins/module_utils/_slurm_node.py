# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node is in Slurm's words: topology from `slurmd -C`, typed GPUs from gpu_facts. Private to the collection."""

from __future__ import annotations

import re
from typing import Any, Optional

# Problem codes of gpu_facts after which fewer GPUs than the node has may have been seen.
_UNTRUSTED = ("gpu_lost", "gpu_missing", "report_truncated")
# Words of product names that say who made a board or how it is mounted, not which GPU it is.
_NOISE = re.compile(
    r"^(nvidia|tesla|geforce|quadro|graphics|generation|edition|server|workstation|laptop|gpu"
    r"|pcie|pci|sxm\d?|nvl\d*|hbm\d?e?|\d+(\.\d+)?gb?)$"
)
# Not for computing: the display card of a DGX Station.
_DISPLAY = re.compile(r"\bdgx display\b", re.IGNORECASE)


def parse_slurmd(text: str) -> dict[str, int]:
    """Fields of the line that `slurmd -C` prints, as given; ValueError when they contradict one another."""
    line = next((line for line in text.splitlines() if line.startswith("NodeName=")), "")
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    try:
        topology = {
            "cpus": int(fields["CPUs"]),
            "boards": int(fields.get("Boards", 1)),
            "sockets": int(fields["SocketsPerBoard"]) * int(fields.get("Boards", 1)),
            "cores": int(fields["CoresPerSocket"]),
            "threads": int(fields["ThreadsPerCore"]),
            "memory_mib": int(fields["RealMemory"]),
        }
    except (KeyError, ValueError) as error:
        raise ValueError(f"slurmd -C answered without {error}: {text.strip()[:200]!r}") from error
    return _consistent(topology)


def parse_lscpu(text: str, meminfo: str) -> dict[str, int]:
    """The same fields from `lscpu -p=CPU,CORE,SOCKET` and /proc/meminfo: a forecast where slurmd is not installed."""
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    sockets = {row[2] for row in rows}
    cores = {(row[2], row[1]) for row in rows}
    memory = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    if not rows or memory is None:
        raise ValueError("neither slurmd -C nor lscpu describes the processors of this host")
    topology = {
        "cpus": len(rows),
        "boards": 1,
        "sockets": len(sockets),
        "cores": len(cores) // len(sockets),
        "threads": len(rows) // len(cores),
        "memory_mib": int(memory.group(1)) // 1024,
    }
    return _consistent(topology)


def _consistent(topology: dict[str, int]) -> dict[str, int]:
    cores = topology["sockets"] * topology["cores"]
    if topology["cpus"] not in (cores, cores * topology["threads"]):
        raise ValueError(
            f"{topology['cpus']} CPUs are neither the {cores} cores nor the {cores * topology['threads']} threads of "
            f"{topology['sockets']} sockets with {topology['cores']} cores of {topology['threads']} threads each"
        )
    return topology


def gres_type(product: str, types: Optional[dict[str, str]] = None) -> str:
    """Slurm's type for a product name: "NVIDIA H100 80GB HBM3" -> "h100". `types` maps product names to chosen ones."""
    if types and product in types:
        return types[product]
    parts = re.split(r"[\s/_-]+", product.lower().replace("max-q", " "))
    words = [word for word in parts if word and not _NOISE.match(word)]
    return re.sub(r"[^a-z0-9.]", "", "".join(words)) or "gpu"


def usable_memory(memory_mib: int, reserve_percent: float) -> int:
    """RealMemory: what is left for jobs, in whole steps so that equal machines get equal lines."""
    left = int(memory_mib * (1 - reserve_percent / 100))
    step = 1024 if left >= 65536 else 64
    return max(left // step * step, 1)


def expand_cpus(text: Optional[str]) -> list[int]:
    """CPU numbers of a list in the kernel's form: "0-2,8" -> [0, 1, 2, 8]."""
    numbers: list[int] = []
    for part in (text or "").split(","):
        if re.match(r"^\d+(-\d+)?$", part.strip()):
            low, _dash, high = part.strip().partition("-")
            numbers.extend(range(int(low), int(high or low) + 1))
    return numbers


def spans(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs of numbers that follow one another, first and last of each: [0, 1, 2, 8] -> [(0, 2), (8, 8)]."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def ranges(numbers: list[int]) -> str:
    """The reverse of `expand_cpus`: [0, 1, 2, 8] -> "0-2,8"."""
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in spans(numbers))


def slurm_cores(cpus: Optional[str], placement: dict[int, tuple[int, int]], cores: int) -> str:
    """Slurm's abstract core numbers for the kernel's CPU numbers of a GPU; empty where they cannot be told.

    `placement` maps each CPU to (package, core); Slurm counts cores package by package. From 23.11 on it
    takes whole sockets only, so a GPU that is near a part of a socket gets all of it. Empty when that is every core.
    """
    order = {place: index for index, place in enumerate(sorted(set(placement.values())))}
    wanted = expand_cpus(cpus)
    if len(order) != cores or not wanted or any(cpu not in placement for cpu in wanted):
        return ""
    sockets = {placement[cpu][0] for cpu in wanted}
    numbers = [index for (package, _core), index in order.items() if package in sockets]
    return "" if len(numbers) == cores else ranges(numbers)


def _links(topology: Optional[dict[str, Any]], count: int) -> list[str]:
    """Links= of each GPU from the NVLink counts of `nvidia-smi topo -m`; empty where all GPUs are linked alike."""
    matrix = (topology or {}).get("gpus") or []
    if len(matrix) != count:
        return []
    rows = []
    for index, row in enumerate(matrix):
        found = [re.match(r"^NV(\d+)$", str(cell)) for cell in row]
        rows.append([-1 if other == index else int(cell.group(1)) if cell else 0 for other, cell in enumerate(found)])
    if len({number for row in rows for number in row if number >= 0}) < 2:
        return []
    return [",".join(str(number) for number in row) for row in rows]


def node_gres(
    gpu: dict[str, Any],
    *,
    types: Optional[dict[str, str]] = None,
    placement: Optional[dict[int, tuple[int, int]]] = None,
    cores: int = 0,
    mig_files: Optional[dict[str, list[str]]] = None,
) -> list[dict[str, str]]:
    """Entries of gres.conf for one node: type, files, and cores and links where they say something.

    `mig_files` maps "gpu/instance/compute instance" of MIG to the capability files that open it. Devices without a
    minor number are left out: without its file Slurm cannot confine a GPU.
    """
    devices = [device for device in gpu.get("devices") or [] if not _DISPLAY.search(str(device.get("name") or ""))]
    links = _links(gpu.get("topology"), len(devices))
    entries = []
    for index, device in enumerate(devices):
        if device.get("minor") is None:
            continue
        path = f"/dev/nvidia{device['minor']}"
        common = {"cores": slurm_cores(device.get("cpus"), placement or {}, cores), "links": ""}
        kind = gres_type(str(device.get("name") or ""), types)
        mig = device.get("mig") or {}
        if not mig.get("enabled"):
            entries.append({"type": kind, "file": path, **common, "links": links[index] if links else ""})
            continue
        for part in mig.get("devices") or []:
            key = f"{device['minor']}/{part.get('gpu_instance')}/{part.get('compute_instance')}"
            caps = (mig_files or {}).get(key)
            if caps:
                profile = re.sub(r"[^a-z0-9.]", "", str(part.get("profile") or "mig").lower())
                entries.append({"type": f"{kind}_{profile}", "file": ",".join([path, *caps]), **common})
    return entries


def parse_mig_minors(text: str) -> dict[str, list[str]]:
    """Capability files by "gpu/instance/compute instance" from /proc/driver/nvidia-caps/mig-minors."""
    minors = dict(re.findall(r"^(gpu\d+/gi\d+(?:/ci\d+)?)/access (\d+)$", text, re.MULTILINE))
    files = {}
    for name, minor in minors.items():
        match = re.match(r"gpu(\d+)/gi(\d+)/ci(\d+)$", name)
        parent = minors.get(name.rpartition("/")[0])
        if match and parent:
            files["/".join(match.groups())] = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (parent, minor)]
    return files


def gpu_notes(gpu: dict[str, Any], entries: list[dict[str, str]]) -> tuple[bool, str]:
    """Whether the GPUs that were seen are all that the node has, and a sentence where they are not or none is given."""
    state = gpu.get("state", "no_gpu")
    if state in ("no_gpu", ""):
        return True, ""
    if state not in ("ok", "degraded"):
        return False, f"no GPU for Slurm: {gpu.get('reason') or state}"
    lost = [problem for problem in gpu.get("problems") or [] if problem.get("code") in _UNTRUSTED]
    if lost:
        return False, f"not all GPUs answer: {lost[0].get('detail') or lost[0]['code']}"
    without = [str(device.get("index")) for device in gpu.get("devices") or [] if device.get("minor") is None]
    if without:
        return True, f"GPU {', '.join(without)}: the driver reports no minor number, so Slurm does not get it"
    if not entries:
        return True, "no GPU for Slurm: none can be given to jobs (MIG enabled without instances, or a display card)"
    return True, ""
