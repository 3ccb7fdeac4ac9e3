# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: what the role nvidia_driver has to do on a host, and everything that speaks against it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nvidia_driver_plan
short_description: What the role nvidia_driver has to do on a host, and what speaks against it
description:
  - From the role's variables and what was read from the host, chooses the flavour of the kernel modules and one version
    for the whole family of packages, and collects everything that the role must refuse.
  - Each refusal names the value seen and the variable to set.
positional: _input
options:
  _input:
    description: The role's variables, without the prefix C(nvidia_driver_).
    type: dict
    required: true
  host:
    description:
      - What was read from the host.
      - C(distribution), and C(kernel) as C(uname -r) has it.
      - C(probe), lines of the role's probe.sh.
      - C(madison), lines of C(apt-cache madison), null before it was asked.
    type: dict
    required: true
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    plan: "{{ {'source': 'distribution', 'version': '535'} | gpuops.cluster.nvidia_driver_plan(host=seen) }}"
"""

RETURN = r"""
_value:
  description:
    - C(problems), the refusals as messages.
    - C(flavour) of the modules, C(candidates), the packages that are wanted, and C(resolved), whether apt knows them.
    - C(packages), package to version, C(release), NVIDIA's number, and C(change), whether something else is installed,
      and C(unhold), installed packages that the new version has no more.
    - C(bring_repository), whether NVIDIA's package with key and source is to be installed.
    - C(local_folder), where debs of source local lie on the host.
    - C(pins), pairs of package globs and version for apt's preferences, and C(headers), packages for the kernels.
    - C(fabric), C(nvlsm), C(imex), whether fabric manager, NVLSM and IMEX are needed.
    - C(changed_since_start), whether packages of the driver were changed while the system ran.
    - C(nouveau), whether that is loaded, C(installed), all packages found,
      C(interrupted), whether dpkg was, C(half), unwanted packages that an earlier failure left half-configured,
      C(gpu_settings), whether the boot unit has settings,
      C(old_repositories), local repositories of other drivers,
      and C(services) to stop while the driver is changed.
  type: dict
"""

import re
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gpu_settings
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
    Family,
    all_spellings,
    family_of,
    matches,
    number,
    offered,
    resolve,
    spelled,
    upstream,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_room import room_problems
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_signing import signing_problems


def read_probe(lines: list[str]) -> dict[str, Any]:
    """The role's probe.sh, line by line: a word and its value."""
    values: dict[str, list[str]] = {}
    for line in lines:
        word, _unused, value = line.partition(" ")
        values.setdefault(word, []).append(value)
    rows = [line.split("|") for line in values.get("dpkg", [])]
    return {
        "pci": values.get("pci", []),
        "installed": {name: version for state, name, version in rows if state[1:2] == "i"},
        "half": [name for state, name, _version in rows if state[1:2] in tuple("FHUW")],
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


def _static_problems(settings: dict[str, Any], host: dict[str, Any], first: str) -> list[str]:
    """What can be refused before any repository is asked; ``first`` is the package whose version is the family's."""
    problems = []
    version, source = settings["version"], settings["source"]
    if version and not re.fullmatch(r"\d{3}(\.\d+){0,2}", version):
        problems.append(
            f"nvidia_driver_version is '{version}', expected a branch such as '535' or a version such as '535.309.01'"
        )
    if not version and (source != "distribution" or host["distribution"] == "Ubuntu"):
        problems.append("nvidia_driver_version is empty; set the branch, such as '550': this source has several")
    if source == "nvidia" and not settings["repository"]:
        problems.append(
            "nvidia_driver_repository is empty; set it to NVIDIA's cuda-keyring or nvidia-driver-local-repo deb"
        )
    if source == "local" and not settings["repository"]:
        problems.append("nvidia_driver_repository is empty; set it to the folder of debs, with SHA256SUMS in it")
    if source != "distribution" and not re.fullmatch(r"sha256:[0-9a-f]{64}", settings["repository_checksum"]):
        seen = settings["repository_checksum"]
        problems.append(f"nvidia_driver_repository_checksum is '{seen}', expected sha256: and 64 hexadecimal digits")
    if host["runfile"]:
        problems.append("a driver of NVIDIA's runfile installer is here; remove it with nvidia-uninstall first")
    ahead = host["installed"].get(first, "")
    wanted = tuple(int(part) for part in re.findall(r"\d+", version))
    if ahead and wanted and not (matches(ahead, version) or number(ahead) < wanted or settings["downgrade_allowed"]):
        problems.append(
            f"{first} {ahead} is installed and nvidia_driver_version is '{version}'; to go back, set "
            "nvidia_driver_downgrade_allowed: true"
        )
    foreign = sorted(name for name in host["installed"] if re.match(r"(lib)?nvidia-(tesla|legacy)-(?!check$)", name))
    if foreign:
        problems.append(f"another driver family is installed ({', '.join(foreign)}); purge it first")
    return problems + (signing_problems(settings, host) if settings["kernel_modules"] else [])


def _change_problems(settings: dict[str, Any], host: dict[str, Any], packages: dict[str, str]) -> list[str]:
    """What speaks against changing what is installed."""
    problems = []
    older = {n: v for n, v in packages.items() if n in host["installed"] and number(v) < number(host["installed"][n])}
    if older and not settings["downgrade_allowed"]:
        steps = ", ".join(sorted({f"{host['installed'][name]} to {version}" for name, version in older.items()}))
        problems.append(
            f"this would go back from {steps}; set nvidia_driver_downgrade_allowed: true, or another version"
        )
    changes = [name for name, version in packages.items() if host["installed"].get(name, version) != version]
    if any(host["installed"].get(name) != version for name, version in packages.items()):
        problems += room_problems(host["room"], host["readonly"], host["initrd"], settings["kernel_modules"])
    _services, users = holders(host["holders"], settings.get("services", []))
    if changes and users and settings["kernel_modules"] and not settings.get("ignore_users"):
        problems.append(
            f"GPUs are in use by {', '.join(users)}; drain the host before its driver is changed, or name services "
            "that may be stopped in nvidia_driver_services"
        )
    return problems


def followers(
    members: list[str], packages: dict[str, str], offers: dict[str, list[str]], installed: dict[str, str]
) -> dict[str, str]:
    """Installed members of the family that nobody named, at the version that it gets; those without one stay out."""
    if not packages:
        return {}
    release = upstream(next(iter(packages.values())))
    choices = {name: [installed[name], *offers.get(name, [])] for name in members}
    return {name: v for name, versions in choices.items() for v in reversed(versions) if upstream(v) == release}


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


def nvidia_driver_plan(settings: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    host = {**host, **read_probe(host["probe"])}
    installed: dict[str, str] = host["installed"]
    branch = settings["version"].partition(".")[0]
    offers = offered(host["madison"] or [], settings["source"])
    family = family_of(settings["source"], host["distribution"], [*offers, *installed], branch)
    if family is None:
        return {"problems": [f"no driver packages are known for {host['distribution']} from {settings['source']}"]}
    known_names = {*offers, *installed}
    problems = _static_problems(settings, host, spelled(family.user, branch, known_names)[0])
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
    here = upstream(installed.get(names[0], ""))
    members = [name for name in installed if name not in names and here and upstream(installed[name]) == here]
    # A repository of another version may be there; the one that is asked for has to be.
    repository, _unused, rest = settings["repository"].rpartition("/")[2].partition("_")
    # A keyring of former times does not know the key of today.
    outdated = repository == "cuda-keyring" and number(installed.get(repository, "")) < number(rest.partition("_")[0])
    brought = settings["source"] == "distribution" or (repository in installed and not outdated)
    if settings["source"] == "local":
        brought = host["local_repository"] == settings["repository_checksum"].partition(":")[2]
    resolved = (bool(offers) and brought) or all(
        name in installed and (name in family.independent or matches(installed[name], settings["version"]))
        for name in names
    )
    packages: dict[str, str] = {}
    if resolved and not problems:
        packages, problems = resolve(names, family.independent, offers, settings["version"], installed)
        packages.update(followers(members, packages, offers, installed))
        problems += _change_problems(settings, host, packages)
    # Which family the debs of source local are is known once apt was asked for the names of both.
    others = [] if host["madison"] is not None else all_spellings(wanted, branch)
    if settings["source"] == "local" and host["madison"] is None:
        vendor = family_of("nvidia", host["distribution"], [], branch)
        others += all_spellings(vendor.names, branch) if vendor else []
    kernel_headers = headers(host["kernel"], host["bootable"]) if modules else []
    known = {line.split("|")[0].strip() for line in host["madison"] or []} | set(installed)
    if host["madison"] is not None and any(name not in known for name in kernel_headers):
        absent = ", ".join(name for name in kernel_headers if name not in known)
        problems.append(f"no repository here has {absent}; bring the kernel up to date and reboot into it first")
    release = upstream(packages[names[0]]) if packages else ""
    if release and modules:
        problems += branch_problems(hardware, int(release.partition(".")[0]))
    independent = {name: version for name, version in packages.items() if name in family.independent}
    return {
        "problems": problems,
        "flavour": flavour,
        "candidates": list(dict.fromkeys(names + members + kernel_headers + others)),
        "packages": packages,
        "release": release,
        "resolved": resolved,
        "bring_repository": settings["source"] == "nvidia" and not brought,
        "local_folder": LOCAL_FOLDER,
        "unhold": [name for name in members if packages and name not in packages],
        "change": any(installed.get(name) != version for name, version in packages.items()),
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
        "cut": host["cut"],
        "half": [name for name in host["half"] if packages and name not in packages and name not in host["cut"]],
        "old_repositories": [
            name for name in installed if name.startswith("nvidia-driver-local-repo-") and name != repository
        ],
        "services": holders(host["holders"], settings.get("services", []))[0],
    }


class FilterModule:
    """The filter, under its name."""

    def filters(self) -> dict[str, Any]:
        return {"nvidia_driver_plan": nvidia_driver_plan}
