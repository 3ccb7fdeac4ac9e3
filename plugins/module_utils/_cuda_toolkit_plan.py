# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role cuda_toolkit has to do on a host, and everything that speaks against it. Pure. Private.

`settings` are the variables of the role without their prefix; the filter of the same name documents all of it.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _cuda_file
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility import Stack, kinds
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility import notes as compatibility_notes
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility import problems as compatibility_problems
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_sources import LOCAL, NETWORK, Removal, removal
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_gpus import read_pci
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_packages import WHOLE

DISTRIBUTIONS = {
    ("Debian", "11"): "debian11",
    ("Debian", "12"): "debian12",
    ("Debian", "13"): "debian13",
    ("Ubuntu", "20.04"): "ubuntu2004",
    ("Ubuntu", "22.04"): "ubuntu2204",
    ("Ubuntu", "24.04"): "ubuntu2404",
}
# NVIDIA's names of a machine: in repository URLs, in file names, and of the folder under targets/.
MACHINES = {"x86_64": ("x86_64", "amd64", "x86_64-linux"), "aarch64": ("sbsa", "arm64", "sbsa-linux")}
DEFAULT_ARCHITECTURE = "90"
KEYRING = "cuda-keyring_1.1-1_all.deb"
# Of what dpkg is asked for, that which is CUDA's: libcurl4 and libnl-3-200 are not.
CUDA = r"(cuda|gds-tools)-.*|nvidia-cuda-toolkit|lib[\w-]+-\d{1,2}-\d{1,2}"


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _removal(settings: dict[str, Any], host: dict[str, Any], distro: str, architecture: str, ours: str) -> Removal:
    """What goes from apt's sources: other files than the owner's that name a repository.

    The same repository twice with different keys is refused by apt, and then everything.
    """
    found = removal(host["sources"], LOCAL, {ours})
    if settings["source"] != "network":
        return found
    own = {f"/etc/apt/sources.list.d/cuda-{distro}-{architecture}.{kind}" for kind in ("list", "sources")}
    more = removal(host["sources"], NETWORK, own)
    if any(entry["path"] == "/etc/apt/sources.list" for entry in more.entries):
        more.problems.append(
            "/etc/apt/sources.list names NVIDIA's CUDA repository, which the keyring package owns; remove that line"
        )
    return Removal(found.files + more.files, found.entries + more.entries, found.problems + more.problems)


def _wants_keyring(settings: dict[str, Any], installed: str) -> bool:
    """Whether NVIDIA's keyring package is to be brought: it is not there, or older than the one that is named."""
    name = settings.get("network_keyring") or KEYRING
    match = re.search(r"cuda-keyring_([\d.]+-\d+)_all\.deb$", name)
    older = match is not None and _numbers(installed) < _numbers(match[1])
    return settings["source"] == "network" and (not installed or older)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _cut(rows: list[list[str]]) -> tuple[list[str], set[str]]:
    """Packages that were cut off while they were unpacked, and the releases of which they are parts."""
    cut = [name for state, name, _unused in rows if state[2:3] == "R" and re.fullmatch(CUDA, name)]
    parts = [re.match(r"(?!cuda-repo-).*-(\d+-\d+)($|-)", name) for name in cut]
    return cut, {part[1] for part in parts if part}


def _of(name: str, mm: str) -> bool:
    """Whether a package belongs to a release."""
    return bool(re.fullmatch(f".*-{mm}|cuda-toolkit-{mm}-.*", name))


def _held(rows: list[list[str]], package: str, releases: set[str]) -> list[str]:
    held = [name for state, name, _unused in rows if state[:1] == "h" and state[1:2] in WHOLE]
    return [name for name in held if name == package or any(_of(name, mm) for mm in releases)]


def _link_problems(link: dict[str, Any]) -> list[str]:
    if not link.get("exists") or link.get("lnk_target") == "/etc/alternatives/cuda":
        return []
    what = f"a link to {link['lnk_target']}" if link.get("islnk") else "not a link"
    return [f"/usr/local/cuda is {what}, not managed by alternatives; move it away, or set cuda_toolkit_default: false"]


def cuda_toolkit_plan(
    settings: dict[str, Any], host: dict[str, Any], file: dict[str, Any] | None = None
) -> dict[str, Any]:
    version, source = settings["version"], settings["source"]
    problems: list[str] = []
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        problems.append(f"cuda_toolkit_version is '{version}', expected M.m such as '13.0', or M.m.p such as '13.0.2'")
        return {"problems": problems}
    release = _release(version)
    short = f"{release[0]}.{release[1]}"
    mm = short.replace(".", "-")
    distro = DISTRIBUTIONS.get((host["distribution"], host["release"]), "")
    repository_architecture, machine, target = MACHINES.get(host["machine"], ("", "", ""))
    if not distro or not machine:
        problems.append(
            f"NVIDIA has no CUDA repository for {host['distribution']} {host['release']} on {host['machine']}"
        )

    match = _cuda_file.parsed(settings)
    local = source == "local_repository"
    if local:
        problems += _cuda_file.name_problems(settings, distro, machine)
    rows = [line.split("|") for line in host["dpkg"]]
    present = {name: number for state, name, number in rows if state[1:2] in WHOLE}
    bring_keyring = _wants_keyring(settings, present.get("cuda-keyring", ""))
    if bring_keyring and not re.fullmatch(r"sha256:[0-9a-f]{64}", settings["network_keyring_checksum"]):
        seen = settings["network_keyring_checksum"]
        problems.append(
            f"cuda_toolkit_network_keyring_checksum is '{seen}', expected sha256: and 64 hexadecimal digits"
        )
    full = match[4] if local and match else version if len(release) == 3 else ""
    package, wanted = f"cuda-toolkit-{mm}", f"{full}-1" if full else ""
    prefix = f"/usr/local/cuda-{short}"
    if source == "distribution":
        package, wanted, prefix = "nvidia-cuda-toolkit", "", "/usr"
        candidate = host.get("candidate") or "none"
        if not re.match(rf"{re.escape(version)}(?!\d)", candidate.partition("~")[2] or candidate):
            problems.append(f"cuda_toolkit_version is '{version}', but this distribution offers {candidate}")
    else:
        problems += _link_problems(host["link"]) if settings["default"] else []

    installed = present.get(package, "")
    if installed and wanted and _release(installed.partition("-")[0]) > _release(full):
        problems.append(
            f"{package} {installed} is installed, newer than {wanted}; remove it first, or set cuda_toolkit_version"
        )
    cut, torn = _cut(rows)
    current = bool(installed) and wanted in ("", installed) and package not in cut and mm not in torn
    repository = f"cuda-repo-{distro}-{mm}-local" if local else ""
    number = f"{match[4]}-{match[5]}-1" if match else ""
    unpacked = local and present.get(repository) == number
    # Also removed ones that are not purged: their source is still there.
    old_packages = [
        name for _state, name, _unused in rows if re.fullmatch(r"cuda-repo-.*-local", name) and name != repository
    ]
    our_list = f"/etc/apt/sources.list.d/cuda-{distro}-{mm}-local.list"
    old = _removal(settings, host, distro, repository_architecture, our_list if local else "")
    problems += old.problems
    stack = Stack(driver=settings.get("driver") or host.get("driver") or "", toolkit=version)
    gpus = host["gpus"] or [{"pci_device": gpu} for gpu in read_pci(host.get("pci") or []).gpus]
    gpu_problems = compatibility_problems(stack, gpus, settings.get("run_kernel", True))
    capabilities = sorted({gpu.capability.replace(".", "") for gpu in kinds(gpus).values()}, key=int)
    if file is not None:
        problems += _cuda_file.problems_of(settings, file)
    previous = host["link"].get("lnk_source") or ""
    return {
        "problems": problems + gpu_problems,
        "notes": compatibility_notes(stack) if settings.get("run_kernel", True) else [],
        "distro": distro,
        "repository_architecture": repository_architecture,
        "target": target,
        "short": short,
        "package": package,
        "version": wanted,
        "family": [package] if source == "distribution" else [f"*-{mm}", f"cuda-toolkit-{mm}-*"],
        "installed": installed,
        "current": current,
        "cut": cut,
        # Of another release, too: it goes with what was cut off of it, and comes again with its own run.
        "held": _held(rows, "" if current else package, torn if current else {mm, *torn}),
        "compiler": "g++" in present,
        "prefix": prefix,
        "nvcc": f"{prefix}/bin/nvcc",
        "repository": repository,
        "list": our_list,
        "holds": f"{repository}|{number}|{machine}",
        "unpacked": unpacked,
        "leftover": any(name == repository for _state, name, _unused in rows),
        "bring": local and not unpacked and (not current or settings["keep_local_repository"]),
        "bring_keyring": bring_keyring,
        "old_packages": old_packages,
        "old_files": old.files,
        "old_entries": old.entries,
        "architectures": settings["architectures"] or capabilities or [DEFAULT_ARCHITECTURE],
        "link": prefix if settings["default"] else previous,
    }
