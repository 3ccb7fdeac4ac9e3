# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver has to do on a host, and everything that speaks against it. Private."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gpu_settings, _nvidia_refusals
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_gpus import (
    Hardware,
    branch_problems,
    choose_flavour,
    read_pci,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_holders import holders
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_packages import (
    GLOBS,
    LOCAL_FOLDER,
    OTHERS,
    WHOLE,
    Family,
    all_spellings,
    family_of,
    followers,
    matches,
    members_of,
    number,
    offered,
    resolve,
    spelled,
    upstream,
)

# Packages that bring a repository: no repository has them.
REPOSITORY = r"nvidia-driver-local-repo-|cuda-keyring$"


def read_probe(lines: list[str]) -> dict[str, Any]:
    """What the probe printed, line by line: a word and its value."""
    values: dict[str, list[str]] = {}
    for line in lines:
        word, _unused, value = line.partition(" ")
        values.setdefault(word, []).append(value)
    rows = [line.split("|") for line in values.get("dpkg", [])]
    return {
        "pci": values.get("pci", []),
        "installed": {name: version for state, name, version in rows if state[1:2] in WHOLE},
        "torn": {name: version for state, name, version in rows if state[1:2] in ("H", "U") and version},
        "half": [name for state, name, _version in rows if state[1:2] in ("F", "H", "U")],
        "cut": [name for state, name, _version in rows if state[2:3] == "R" and not name.startswith("linux-")],
        "interrupted": "interrupted" in values,
        "holders": values.get("holder", []),
        "runfile": "runfile" in values,
        "bootable": values.get("kernel", []),
        "nouveau": "nouveau" in values,
        "changed": "changed" in values,
        "gpu_settings": "gpu_settings" in values,
        "secure_boot": "secure_boot" in values,
        "enrolled": values.get("enrolled", []),
        "key_enrolled": "key_enrolled" in values,
        "local_repository": values.get("local_repository", [""])[0],
        "room": values.get("room", []),
        "readonly": values.get("readonly", []),
        "initrd": int(values.get("initrd", ["0"])[0]),
    }


def headers(running: str, bootable: list[str]) -> list[str]:
    """Header packages: of the running kernel, of the newest on disk, and the one that follows that flavour's kernels.

    What follows 6.1.0-50-cloud-amd64 is linux-headers-cloud-amd64.
    """
    parts = running.split("-")[1:]
    while parts and parts[0][0].isdigit():
        parts.pop(0)
    kernels = {running, max(bootable, key=lambda kernel: [int(n) for n in re.findall(r"\d+", kernel)], default=running)}
    return [f"linux-headers-{name}" for name in (*sorted(kernels), "-".join(parts))]


def _wanted(family: Family, flavour: str, hardware: Hardware) -> tuple[list[str], list[str]]:
    """Packages for a host with modules, as the family spells them, and what this family does not have."""
    names = [*family.user, *family.modules.get(flavour, []), *family.kernel]
    problems = []
    for needed, packages, what in (
        (hardware.needs_fabric, family.fabric, "has NVSwitches and its distribution has no fabric manager"),
        (hardware.needs_nvlsm, family.nvlsm, "needs NVLSM for its NVSwitches, which its distribution has not"),
        (hardware.needs_imex, family.imex, "needs IMEX, which its distribution has not"),
    ):
        names += packages if needed else []
        if needed and not packages:
            problems.append(f"this host {what}; set nvidia_driver_source: nvidia")
    return names, problems


def _repository(settings: dict[str, Any], host: dict[str, Any]) -> tuple[str, bool]:
    """Name of the package that brings the repository, and whether the one that is asked for is there."""
    name, _unused, rest = settings["repository"].rpartition("/")[2].partition("_")
    if settings["source"] == "distribution":
        return name, True
    if settings["source"] == "local":
        return name, host["local_repository"] == settings["repository_checksum"].partition(":")[2]
    there = host["installed"].get(name, "")
    # A keyring of former times does not know the key of today.
    outdated = name == "cuda-keyring" and number(there) < number(rest.partition("_")[0])
    return name, name in host["installed"] and not outdated


def _other_spellings(settings: dict[str, Any], host: dict[str, Any], wanted: list[str], branch: str) -> list[str]:
    """More names to ask apt for, before it was asked: which family the debs of source local are is not known yet."""
    if host["madison"] is not None:
        return []
    vendor = family_of("nvidia", host["distribution"], [], branch) if settings["source"] == "local" else None
    return all_spellings(wanted, branch) + (all_spellings(vendor.names, branch) if vendor else [])


def plan(settings: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    host = {**host, **read_probe(host["probe"])}
    host["broken"] = bool(host["interrupted"] or host["cut"] or host["torn"])
    installed: dict[str, str] = host["installed"]
    branch = settings["version"].partition(".")[0]
    offers = offered(host["madison"] or [], settings["source"])
    family = family_of(settings["source"], host["distribution"], [*offers, *installed], branch)
    if family is None:
        return {"problems": [f"no driver packages are known for {host['distribution']} from {settings['source']}"]}
    known_names = {*offers, *installed}
    problems = _nvidia_refusals.before_asking(settings, host, spelled(family.user, branch, known_names)[0])
    problems += _gpu_settings.problems(settings["gpu_settings"]) if settings.get("gpu_settings") else []
    branch_number = int(branch) if branch.isdigit() else 0
    hardware = read_pci(host["pci"])
    modules = settings["kernel_modules"]
    fabric = modules and hardware.needs_fabric
    flavour = ""
    if modules:
        flavour, why_not = choose_flavour(hardware, settings["flavour"], branch_number, settings["source"] == "nvidia")
        problems += why_not
    wanted, lacking = _wanted(family, flavour, hardware) if modules else (list(family.user), [])
    problems += lacking
    wanted += settings["extra_packages"]
    names = spelled(wanted, branch, known_names)
    others = [name for kind, those in family.modules.items() if kind != flavour for name in those]
    members = members_of(family, names, all_spellings(others, branch), host)
    repository, brought = _repository(settings, host)
    resolved = (bool(offers) and brought) or all(
        name in installed and (name in family.independent or matches(installed[name], settings["version"]))
        for name in names
    )
    packages: dict[str, str] = {}
    if resolved and not problems:
        packages, problems = resolve(names, family.independent, offers, settings["version"], installed)
        packages.update(followers(members, packages, host, settings["source"]))
        problems += _nvidia_refusals.before_changing(settings, host, packages)
    kernel_headers = headers(host["kernel"], host["bootable"]) if modules else []
    known = {line.split("|")[0].strip() for line in host["madison"] or []} | set(installed)
    if host["madison"] is not None and any(name not in known for name in kernel_headers):
        absent = ", ".join(name for name in kernel_headers if name not in known)
        problems.append(f"no repository here has {absent}; bring the kernel up to date and reboot into it first")
    release = upstream(packages[names[0]]) if packages else ""
    if release and modules:
        problems += branch_problems(hardware, int(release.partition(".")[0]))
    # What can be had is unpacked anew by apt, and what is of others is theirs.
    everywhere = offered(host["madison"] or [])
    cut = [name for name in host["cut"] if packages.get(name) not in everywhere.get(name, [])]
    cut_first = [name for name in cut if re.match(REPOSITORY, name)]
    cut = [name for name in cut if name in names or name in members]
    # With one that it cannot bring, apt would not install NVIDIA's repository.
    cut_first += cut if settings["source"] == "nvidia" and not resolved else []
    change = any(installed.get(name) != version for name, version in packages.items())
    lost = [name for name in cut if not change and upstream(host["torn"].get(name, "")) == release]
    if lost:
        problems.append(
            f"{', '.join(lost)} was cut off while it was unpacked, and no repository here has it in {release}; set "
            "nvidia_driver_version to one that they have"
        )
    independent = {name: version for name, version in packages.items() if name in family.independent}
    broken = [name for name in host["half"] if not re.match(OTHERS, name)]
    return {
        "problems": problems,
        "flavour": flavour,
        "candidates": list(
            dict.fromkeys(names + list(members) + kernel_headers + _other_spellings(settings, host, wanted, branch))
        ),
        "packages": packages,
        "release": release,
        "resolved": resolved,
        "bring_repository": settings["source"] == "nvidia" and not brought,
        "local_folder": LOCAL_FOLDER,
        "unhold": [name for name in members if packages and name in installed and name not in packages],
        "change": change,
        "fabric": fabric,
        "nvlsm": modules and hardware.needs_nvlsm,
        "imex": modules and hardware.needs_imex,
        "pins": [[name, version] for name, version in sorted(independent.items())] + [[GLOBS, f"{release}-*"]],
        "headers": kernel_headers,
        "installed": installed,
        "nouveau": host["nouveau"],
        "changed_since_start": host["changed"],
        "gpu_settings": host["gpu_settings"],
        "interrupted": host["interrupted"],
        "cut": cut,
        "cut_first": cut_first,
        "broken": host["broken"],
        "half": [name for name in broken if packages and name not in packages and name not in host["cut"]],
        "others": OTHERS,
        "old_repositories": [
            name for name in installed if name.startswith("nvidia-driver-local-repo-") and name != repository
        ],
        "services": holders(host["holders"], settings.get("services", []))[0],
    }
