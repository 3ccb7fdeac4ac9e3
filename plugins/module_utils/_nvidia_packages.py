# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The families of driver packages, and the one version that a whole family exists in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Repositories of NVIDIA and the one that source local makes, in lines of `apt-cache madison`.
_NVIDIA_REPOSITORY = re.compile(
    r"/compute/cuda/repos/|file:/+var/(cuda-repo|nvidia-driver-local-repo)-|[./-]nvidia[./-]"
)
LOCAL_FOLDER = "/var/lib/gpuops/nvidia-driver"
# What may belong to a driver, as globs of apt_preferences; used with an exact version only.
GLOBS = "*nvidia* cuda-drivers* libcuda1* libcudadebugger1* libnvcuvid1* libnvoptix1* libnvsdm* nvlsm"
# What is named like a driver and is none.
OTHERS = r"(lib)?nvidia-(container|cuda-(dev|doc|gdb|toolkit)|cudnn|docker|fs|gds|mig-)"
# dpkg's states of packages that are whole: after a dpkg that was killed, some only wait for triggers.
WHOLE = ("i", "W", "t")


@dataclass
class Family:
    """The packages of one source: what every host needs, what the kernel modules need, what NVSwitches need.

    Names may hold {branch}, and be several, separated by bars: the first that the source has counts, for NVIDIA dropped
    the branch from its names with 590. Those in ``independent`` have version numbers of their own.
    """

    user: list[str]
    modules: dict[str, list[str]]
    kernel: list[str]
    fabric: list[str] = field(default_factory=list)
    nvlsm: list[str] = field(default_factory=list)
    imex: list[str] = field(default_factory=list)
    independent: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Every package of the family, of both flavours."""
        return [
            *self.user,
            *(name for flavour in self.modules.values() for name in flavour),
            *self.kernel,
            *self.fabric,
        ]


FAMILIES = {
    ("distribution", "Debian"): Family(
        user=["libcuda1", "libnvidia-ml1", "nvidia-smi"],
        modules={"proprietary": ["nvidia-kernel-dkms"], "open": ["nvidia-open-kernel-dkms"]},
        kernel=["nvidia-kernel-support", "firmware-nvidia-gsp", "nvidia-modprobe", "nvidia-persistenced"],
        independent=("nvidia-modprobe", "nvidia-persistenced", "nvidia-settings"),
    ),
    ("distribution", "Ubuntu"): Family(
        user=["libnvidia-compute-{branch}-server", "nvidia-utils-{branch}-server"],
        modules={"proprietary": ["nvidia-dkms-{branch}-server"], "open": ["nvidia-dkms-{branch}-server-open"]},
        kernel=["nvidia-kernel-common-{branch}-server", "nvidia-compute-utils-{branch}-server"],
        fabric=["nvidia-fabricmanager-{branch}"],
    ),
    ("nvidia", "Debian"): Family(
        user=["nvidia-driver-cuda"],
        modules={"proprietary": ["nvidia-kernel-dkms"], "open": ["nvidia-kernel-open-dkms"]},
        kernel=["nvidia-persistenced"],
        fabric=["nvidia-fabricmanager-{branch}|nvidia-fabricmanager"],
        nvlsm=["nvlsm"],
        imex=["nvidia-imex-{branch}|nvidia-imex"],
        independent=("nvlsm",),
    ),
    ("nvidia", "Ubuntu"): Family(
        user=["libnvidia-compute-{branch}|libnvidia-compute", "nvidia-utils-{branch}|nvidia-utils"],
        modules={
            "proprietary": ["nvidia-dkms-{branch}|nvidia-dkms"],
            "open": ["nvidia-dkms-{branch}-open|nvidia-dkms-open"],
        },
        kernel=[
            "nvidia-kernel-common-{branch}|nvidia-kernel-common",
            "nvidia-compute-utils-{branch}|nvidia-compute-utils",
        ],
        fabric=["nvidia-fabricmanager-{branch}|nvidia-fabricmanager"],
        nvlsm=["nvlsm"],
        imex=["nvidia-imex-{branch}|nvidia-imex"],
        independent=("nvlsm",),
    ),
}


def spelled(names: list[str], branch: str, known: Iterable[str]) -> list[str]:
    """Names with the branch in them; of several, the first that is known, else the first."""
    chosen = []
    for name in names:
        spellings = name.format(branch=branch).split("|")
        chosen.append(next((spelling for spelling in spellings if spelling in known), spellings[0]))
    return chosen


def all_spellings(names: list[str], branch: str) -> list[str]:
    return [spelling for name in names for spelling in name.format(branch=branch).split("|")]


def upstream(version: str) -> str:
    """NVIDIA's number in a package's version: 535.309.01 of 1:535.309.01-0+deb12u1."""
    return version.partition(":")[2].rpartition("-")[0] if ":" in version else version.rpartition("-")[0] or version


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", upstream(version)))


def _owner(repository: str) -> str:
    if re.match(rf"file:/*{LOCAL_FOLDER}\b", repository):
        return "local"
    return "nvidia" if _NVIDIA_REPOSITORY.search(repository) else "distribution"


def family_of(source: str, distribution: str, offers: Iterable[str], branch: str) -> Family | None:
    """The family of a source. Debs of source local are NVIDIA's or the distribution's, as their names tell."""
    if source != "local":
        return FAMILIES.get((source, distribution))
    vendor = FAMILIES.get(("nvidia", distribution))
    own = vendor is not None and any(name in offers for name in all_spellings(vendor.user, branch))
    return vendor if own else FAMILIES.get(("distribution", distribution))


def offered(madison: list[str], source: str = "") -> dict[str, list[str]]:
    """{package: versions, newest first} that the wanted source offers, or any, from lines of `apt-cache madison`."""
    found: dict[str, list[str]] = {}
    for line in madison:
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or not parts[2].endswith(" Packages"):
            continue
        if source in ("", _owner(parts[2])):
            versions = found.setdefault(parts[0], [])
            if parts[1] not in versions:
                versions.append(parts[1])
    return found


def matches(version: str, wanted: str) -> bool:
    """Does a package's version satisfy a branch (535), a version (535.309.01), or nothing in particular?"""
    return not wanted or upstream(version) == wanted or upstream(version).startswith(f"{wanted}.")


def resolve(
    packages: list[str],
    independent: tuple[str, ...],
    offers: dict[str, list[str]],
    wanted: str,
    installed: dict[str, str],
) -> tuple[dict[str, str], list[str]]:
    """One version for each package, the same upstream number for all that share theirs, and what stands in the way.

    What is installed and satisfies the wish stays: a newer release in the archive is no reason to change a driver.
    """
    shared = [name for name in packages if name not in independent]
    choices = {name: list(offers.get(name, [])) for name in packages}
    for name in packages:
        if name in installed:
            choices[name] = [installed[name]] + [version for version in choices[name] if version != installed[name]]
    absent = [name for name in packages if not choices[name]]
    if absent:
        return {}, [f"no repository here has {', '.join(absent)} (nvidia_driver_source)"]
    common = [v for v in choices[shared[0]] if all(upstream(v) in map(upstream, choices[name]) for name in shared)]
    fitting = [version for version in common if matches(version, wanted)]
    if not fitting:
        have = "; ".join(f"{name} {', '.join(choices[name])}" for name in shared)
        wish = f"nvidia_driver_version is '{wanted}'" if wanted else "no version is common to the family"
        return {}, [f"{wish}, the repositories have {have}"]
    here = {upstream(installed[name]) for name in shared if name in installed}
    release = next((number for number in map(upstream, fitting) if number in here), upstream(fitting[0]))
    chosen = {name: next(v for v in choices[name] if upstream(v) == release) for name in shared}
    chosen.update({name: choices[name][0] for name in packages if name in independent})
    return chosen, []


def members_of(family: Family, names: list[str], unwanted: list[str], host: dict[str, Any]) -> dict[str, str]:
    """What belongs to the family and nobody named, package to version: what has the number of the named packages.

    Where an upgrade was interrupted, also what was cut off or only unpacked, and what has another driver's number.
    """
    there = {**host["torn"], **host["installed"]}
    here = {upstream(there[name]) for name in names if name in there and name not in family.independent}
    return {
        name: version
        for name, version in there.items()
        if name not in names
        and (name in host["installed"] or name not in unwanted)
        and (
            upstream(version) in here
            or (
                host["broken"]
                and name not in family.independent
                and re.fullmatch(r"\d{3}(\.\d+){1,2}", upstream(version))
            )
        )
    }


def followers(members: dict[str, str], packages: dict[str, str], host: dict[str, Any], source: str) -> dict[str, str]:
    """Members of the family that nobody named, at the version that it gets; those without one stay out.

    Other repositories serve, too, where the wanted source has some packages alone, as a folder of debs may.
    """
    if not packages:
        return {}
    release = upstream(next(iter(packages.values())))
    own, everywhere = offered(host["madison"] or [], source), offered(host["madison"] or [])
    choices = {
        name: ([version] if name in host["installed"] or version in everywhere.get(name, []) else [])
        + own.get(name, [])
        + everywhere.get(name, [])
        for name, version in members.items()
    }
    return {name: v for name, versions in choices.items() for v in reversed(versions) if upstream(v) == release}
