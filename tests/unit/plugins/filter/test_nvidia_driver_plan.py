"""What nvidia_driver decides: one version for the family, flavour, headers, and what it refuses."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.filter.apt_components import apt_components
from ansible_collections.gpuops.cluster.plugins.filter.nvidia_driver_plan import nvidia_driver_plan
from ansible_collections.gpuops.cluster.plugins.filter.nvidia_driver_verdict import nvidia_driver_verdict
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_plan import headers

SECURITY = "http://mirror/debian-security bookworm-security/non-free amd64 Packages"
MAIN = "http://mirror/debian bookworm/non-free amd64 Packages"
NEW, OLD = "535.309.01-0+deb12u1", "535.261.03-1"
# As Debian 12 has them: the open modules only in the older version, two packages with numbers of their own.
BOOKWORM = [
    *(f"{name} | {NEW} | {SECURITY}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-kernel-dkms")),
    *(f"{name} | {OLD} | {MAIN}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-kernel-dkms")),
    *(f"{name} | {NEW} | {SECURITY}" for name in ("nvidia-kernel-support", "firmware-nvidia-gsp")),
    *(f"{name} | {OLD} | {MAIN}" for name in ("nvidia-kernel-support", "firmware-nvidia-gsp")),
    f"nvidia-open-kernel-dkms | {OLD} | {MAIN}",
    f"nvidia-persistenced | 535.171.04-1~deb12u1 | {MAIN}",
    f"nvidia-modprobe | {NEW} | {SECURITY}",
    f"nvidia-modprobe | 535.161.07-1~deb12u1 | {MAIN}",
    f"linux-headers-6.1.0-57-amd64 | 6.1.192-3 | {SECURITY}",
    f"linux-headers-amd64 | 6.1.192-3 | {SECURITY}",
    f"nvidia-graphics-drivers | {NEW} | http://mirror/debian-security bookworm-security/non-free Sources",
    "libcuda1 | 580.95.05-1 | file:/var/cuda-repo-debian12-13-0-local  Packages",
]


def settings(**changed: Any) -> dict[str, Any]:
    return {
        "source": "distribution",
        "version": "",
        "repository": "",
        "repository_checksum": "",
        "kernel_modules": True,
        "flavour": "auto",
        "extra_packages": [],
        "downgrade_allowed": False,
        **changed,
    }


def pci(*devices: tuple[str, str]) -> list[str]:
    """Probe lines for functions of NVIDIA's: pairs of device number and class."""
    lines = []
    for number, (device, kind) in enumerate(devices):
        path = f"pci /sys/bus/pci/devices/0000:{number:02x}:00.0"
        lines += [f"{path}/vendor:0x10de", f"{path}/device:0x{device}", f"{path}/class:{kind}"]
    return lines


RTX6000, GB200 = ("2bb1", "0x030000"), ("2941", "0x030200")
H100, V100, B200, SWITCH = ("2330", "0x030200"), ("1db6", "0x030200"), ("2901", "0x030200"), ("22a3", "0x068000")


def plan(changed: dict[str, Any] | None = None, *probe: str, **seen: Any) -> dict[str, Any]:
    host = {
        "distribution": "Debian",
        "kernel": "6.1.0-57-amd64",
        "probe": list(probe) or pci(H100),
        "madison": BOOKWORM,
        **seen,
    }
    return nvidia_driver_plan(settings(**(changed or {})), host)


def test_the_newest_version_that_all_have_is_taken_for_all() -> None:
    decided = plan()
    assert not decided["problems"]
    assert decided["release"] == "535.309.01"
    assert decided["flavour"] == "proprietary"
    own = {"nvidia-persistenced": "535.171.04-1~deb12u1", "nvidia-modprobe": NEW}
    assert {name: version for name, version in decided["packages"].items() if version != NEW or name in own} == own


def test_the_open_modules_pull_the_whole_family_to_their_version() -> None:
    decided = plan({"flavour": "open"})
    assert not decided["problems"]
    assert decided["packages"]["nvidia-open-kernel-dkms"] == OLD
    assert decided["packages"]["libcuda1"] == OLD
    assert [decided["pins"][0][0], decided["pins"][-1][1]] == ["nvidia-modprobe", "535.261.03-*"]


def test_other_repositories_do_not_count() -> None:
    assert "580" not in str(plan({"version": "535"})["packages"])
    (problem,) = plan({"version": "580", "kernel_modules": False})["problems"]
    assert "nvidia_driver_version is '580'" in problem
    assert NEW in problem


def test_user_space_alone_needs_neither_modules_nor_headers() -> None:
    decided = plan({"kernel_modules": False}, kernel="6.18.0-custom")
    assert sorted(decided["packages"]) == ["libcuda1", "libnvidia-ml1", "nvidia-smi"]
    assert decided["headers"] == []
    assert not decided["problems"]


def installed(version: str, *names: str) -> list[str]:
    return [f"dpkg hi |{name}|{version}" for name in names or ("libcuda1", "libnvidia-ml1", "nvidia-smi")]


@pytest.mark.parametrize("wish", ["", "535", "535.261.03"])
def test_an_installed_driver_that_satisfies_the_wish_stays(wish: str) -> None:
    decided = plan({"kernel_modules": False, "version": wish}, *installed(OLD))
    assert decided["release"] == "535.261.03"
    assert not decided["change"]


def test_another_version_is_a_change_and_going_back_needs_consent() -> None:
    forward = plan({"kernel_modules": False, "version": "535.309.01"}, *installed(OLD))
    assert forward["change"]
    assert not forward["problems"]
    back = {"kernel_modules": False, "version": "535.261.03"}
    assert "nvidia_driver_downgrade_allowed" in plan(back, *installed(NEW), madison=[])["problems"][0]
    assert not plan({**back, "downgrade_allowed": True}, *installed(NEW))["problems"]


def test_whatever_is_installed_of_the_family_moves_along() -> None:
    probe = [
        *installed(OLD),
        *installed(OLD, "nvidia-settings", "libnvidia-gone"),
        *installed("1.0-1", "nvidia-support"),
    ]
    offers = [*BOOKWORM, f"nvidia-settings | {NEW} | {SECURITY}"]
    decided = plan({"kernel_modules": False, "version": "535.309.01"}, *probe, madison=offers)
    assert decided["packages"]["nvidia-settings"] == NEW
    assert decided["unhold"] == ["libnvidia-gone"]
    assert "nvidia-support" not in decided["candidates"]


def test_the_family_moves_along_when_one_of_it_was_cut_off_while_it_was_unpacked() -> None:
    probe = [f"dpkg iHR|libcuda1|{OLD}", *installed(OLD, "libnvidia-ml1", "nvidia-smi", "nvidia-alternative")]
    offers = [*BOOKWORM, f"nvidia-alternative | {NEW} | {SECURITY}"]
    decided = plan({"kernel_modules": False, "version": "535.309.01"}, *probe, madison=offers)
    assert decided["broken"]
    assert decided["packages"]["nvidia-alternative"] == NEW, "held at the old version, it would keep the others"


@pytest.mark.parametrize("state", ["hi ", "ht ", "hW "])
@pytest.mark.parametrize("cut", [["libcuda1"], ["libcuda1", "libnvidia-ml1", "nvidia-smi"]])
def test_what_waits_for_triggers_is_installed_and_moves_along(state: str, cut: list[str]) -> None:
    """As a dpkg that is killed leaves them; with all that is named cut off, only the rest tells what was there."""
    whole = [name for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi") if name not in cut]
    probe = [f"dpkg hHR|{name}|{OLD}" for name in cut] + (installed(OLD, *whole) if whole else [])
    wish = {"kernel_modules": False, "version": "535.309.01"}
    decided = plan(wish, *probe, f"dpkg {state}|nvidia-alternative|{OLD}")
    assert decided["unhold"] == ["nvidia-alternative"]
    assert decided["half"] == decided["cut"] == []
    offers = [*BOOKWORM, f"nvidia-alternative | {NEW} | {SECURITY}"]
    decided = plan(wish, *probe, f"dpkg {state}|nvidia-alternative|{OLD}", madison=offers)
    assert decided["packages"]["nvidia-alternative"] == NEW


def test_a_member_that_was_cut_off_is_unpacked_anew_though_nobody_named_it() -> None:
    wish = {"kernel_modules": False, "version": "535"}
    probe = [*installed(NEW), f"dpkg hHR|nvidia-alternative|{NEW}"]
    offers = [*BOOKWORM, f"nvidia-alternative | {NEW} | {SECURITY}"]
    decided = plan(wish, *probe, madison=offers)
    assert decided["change"]
    assert decided["packages"]["nvidia-alternative"] == NEW
    assert decided["cut"] == decided["half"] == []
    (problem,) = plan(wish, *probe)["problems"]
    assert (
        "nvidia-alternative was cut off while it was unpacked, and no repository here has it in 535.309.01" in problem
    )
    gone = plan(wish, *installed(OLD)[1:], *probe[3:])
    assert gone["cut"] == ["nvidia-alternative"], "apt refuses everything while it cannot be had"
    assert not gone["problems"]


def test_an_upgrade_that_was_interrupted_goes_on_with_the_whole_family() -> None:
    """All that is named has the new version, and is not configured: only names tell of the rest."""
    named = [f"dpkg iU |{name}|{NEW}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi")]
    rest = [f"dpkg iHR|libnvidia-ptxjitcompiler1|{OLD}", f"dpkg hi |nvidia-legacy-check|{OLD}"]
    foreign = ["dpkg iHR|nvidia-container-toolkit|1.17.4-1", "dpkg iU |nvidia-open-kernel-dkms|535.309.01-1"]
    offers = [*BOOKWORM, *(f"{name} | {NEW} | {SECURITY}" for name in ("libnvidia-ptxjitcompiler1",))]
    wish = {"kernel_modules": False, "version": "535.309.01"}
    asked = plan(wish, *named, *rest, *foreign, madison=None)["candidates"]
    assert {"libnvidia-ptxjitcompiler1", "nvidia-legacy-check"} <= set(asked)
    decided = plan(wish, *named, *rest, *foreign, madison=offers)
    assert decided["packages"]["libnvidia-ptxjitcompiler1"] == NEW
    assert decided["unhold"] == ["nvidia-legacy-check"]
    assert decided["cut"] == [], "what is not the driver's is left to apt"
    assert decided["half"] == ["nvidia-open-kernel-dkms"], "modules that nobody wants do not move along"


@pytest.mark.parametrize("name", ["libcuda1", "nvidia-kernel-dkms"])
def test_a_package_that_was_cut_off_comes_back_at_the_version_of_the_others(name: str) -> None:
    there = [other for other in plan()["packages"] if other not in (name, "nvidia-persistenced", "nvidia-modprobe")]
    decided = plan({}, *pci(H100), *installed(OLD, *there), f"dpkg iHR|{name}|{OLD}")
    assert decided["release"] == "535.261.03", "a newer one in the archive is no reason to change the driver"
    assert decided["packages"][name] == OLD
    assert decided["change"]


def test_members_come_from_the_archive_where_debs_of_ones_own_lack_them() -> None:
    wish = {
        **{"source": "local", "version": "535.309.01", "repository": "/srv/debs", "kernel_modules": False},
        "repository_checksum": "sha256:" + "a" * 64,
    }
    own = [f"{name} | {NEW} | {LOCAL}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi")]
    probe = ["local_repository " + "a" * 64, *installed(OLD), *installed(OLD, "nvidia-alternative")]
    decided = plan(wish, *probe, madison=[*own, f"nvidia-alternative | {NEW} | {SECURITY}"])
    assert decided["packages"]["nvidia-alternative"] == NEW
    assert not decided["unhold"]


def test_without_the_repository_nothing_is_resolved_and_nothing_refused() -> None:
    decided = plan({"kernel_modules": False}, madison=[])
    assert not decided["resolved"]
    assert not decided["problems"]


@pytest.mark.parametrize(
    ("devices", "wanted", "flavour", "words"),
    [
        ([V100], "auto", "proprietary", ""),
        ([V100], "open", "", "work with 'proprietary' only (10de:1db6)"),
        ([B200], "proprietary", "", "work with 'open' only (10de:2901)"),
        ([B200, V100], "auto", "", "no flavour of the modules in common"),
        ([H100], "open", "open", ""),
        ([RTX6000], "auto", "open", "GPU 10de:2bb1 needs branch 570 or newer"),
        ([B200], "auto", "open", "needs NVLSM for its NVSwitches"),
        ([GB200], "auto", "open", "needs IMEX"),
        ([H100, SWITCH], "auto", "proprietary", "no fabric manager"),
    ],
)
def test_flavour_and_branch_come_from_the_pci_bus(
    devices: list[tuple[str, str]], wanted: str, flavour: str, words: str
) -> None:
    decided = plan({"flavour": wanted}, *pci(*devices))
    assert decided["flavour"] == flavour
    assert (words in " ".join(decided["problems"])) if words else not decided["problems"]


@pytest.mark.parametrize(
    ("changed", "probe", "words"),
    [
        ({"version": "five"}, [], "nvidia_driver_version is 'five'"),
        ({"version": "535.1.2.3"}, [], "nvidia_driver_version is '535.1.2.3'"),
        ({"source": "nvidia"}, [], "nvidia_driver_version is empty"),
        ({"source": "nvidia", "version": "580"}, [], "nvidia_driver_repository is empty"),
        ({"source": "local", "version": "580"}, [], "nvidia_driver_repository is empty; set it to the folder of debs"),
        ({"source": "local", "version": "580"}, [], "nvidia_driver_repository_checksum is ''"),
        ({"source": "local"}, [], "nvidia_driver_version is empty"),
        ({}, ["runfile found"], "nvidia-uninstall"),
        ({}, ["secure_boot on"], "mokutil --import"),
        ({}, ["dpkg ii |nvidia-tesla-470-driver|470.1-1"], "nvidia-tesla-470-driver"),
        ({"version": "535.309.01"}, [*installed(OLD), "holder - python3"], "in use by python3"),
    ],
)
def test_what_cannot_work_is_refused(changed: dict[str, Any], probe: list[str], words: str) -> None:
    decided = plan(changed, *pci(H100), *probe)
    assert words in " ".join(decided["problems"])


def test_what_an_earlier_failure_left_is_named_unless_it_is_wanted_or_of_others() -> None:
    left = ["dpkg iF |nvidia-open-kernel-dkms|535.261.03-1", f"dpkg iU |nvidia-smi|{NEW}", "interrupted dpkg"]
    left += ["dpkg iF |nvidia-container-toolkit|1.17.4-1", "dpkg iU |libnvidia-container1|1.17.4-1"]
    decided = plan({}, *pci(H100), *left)
    assert decided["half"] == ["nvidia-open-kernel-dkms"]
    assert decided["interrupted"]
    assert decided["change"]


def test_daemons_of_the_driver_do_not_stand_in_the_way() -> None:
    probe = [*pci(H100), *installed(OLD), "holder nvidia-persistenced.service nvidia-persiste"]
    decided = plan({"version": "535.309.01"}, *probe)
    assert not decided["problems"]
    assert decided["services"] == ["nvidia-persistenced"]


VENDOR = "file:/var/nvidia-driver-local-repo-ubuntu2404-590.48.01  Packages"
# From 590 on NVIDIA's packages for Ubuntu have no branch in their names.
UBUNTU = [
    f"{name} | 590.48.01-1ubuntu1 | {VENDOR}"
    for name in (
        *("libnvidia-compute", "nvidia-utils", "nvidia-dkms-open", "nvidia-kernel-common", "nvidia-compute-utils"),
        *("nvidia-fabricmanager", "nvidia-imex"),
    )
] + [
    f"nvlsm | 2025.10.11-1 | {VENDOR}",
    "linux-headers-6.8.0-90-generic | 6.8.0-90.91 | http://mirror/ubuntu noble-updates/main amd64 Packages",
    "linux-headers-generic | 6.8.0-90.91 | http://mirror/ubuntu noble-updates/main amd64 Packages",
]


@pytest.mark.parametrize(
    ("gpu", "more"),
    [
        (B200, {"nvidia-fabricmanager": "590.48.01-1ubuntu1", "nvlsm": "2025.10.11-1"}),
        (GB200, {"nvidia-imex": "590.48.01-1ubuntu1"}),
        (RTX6000, {}),
    ],
)
def test_boards_whose_switches_are_not_on_the_bus_get_what_they_need(
    gpu: tuple[str, str], more: dict[str, str]
) -> None:
    wish = {
        **{"source": "nvidia", "version": "590", "repository_checksum": "sha256:" + "a" * 64},
        "repository": "/srv/nvidia-driver-local-repo-ubuntu2404-590.48.01_1.0-1_amd64.deb",
    }
    seen = {"distribution": "Ubuntu", "kernel": "6.8.0-90-generic", "madison": UBUNTU}
    probe = [*pci(gpu), "dpkg ii |nvidia-driver-local-repo-ubuntu2404-590.48.01|1.0-1"]
    asked = plan(wish, *probe, **{**seen, "madison": None})["candidates"]
    assert {"libnvidia-compute-590", "libnvidia-compute", *more} <= set(asked), "both spellings are asked for"
    decided = plan(wish, *probe, **seen)
    assert not decided["problems"]
    special = {name: version for name, version in decided["packages"].items() if name in ("nvlsm", "nvidia-imex")}
    special.update({n: v for n, v in decided["packages"].items() if n == "nvidia-fabricmanager"})
    assert special == more
    assert decided["packages"]["nvidia-dkms-open"] == "590.48.01-1ubuntu1"


LOCAL = "file:/var/lib/gpuops/nvidia-driver ./ Packages"


def test_debs_of_ones_own_are_of_the_family_that_their_names_tell() -> None:
    wish = {
        **{"source": "local", "version": "535", "repository": "/srv/debs", "kernel_modules": False},
        "repository_checksum": "sha256:" + "a" * 64,
    }
    here = "local_repository " + "a" * 64
    names = plan(wish, madison=None)["candidates"]
    assert {"libcuda1", "nvidia-driver-cuda"} <= set(names)
    assert not plan(wish, madison=BOOKWORM)["resolved"], "the archive's do not count"
    debian = [f"{name} | {OLD} | {LOCAL}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi")]
    decided = plan(wish, here, madison=[*BOOKWORM, *debian])
    assert decided["packages"] == dict.fromkeys(("libcuda1", "libnvidia-ml1", "nvidia-smi"), OLD)
    vendor = [f"nvidia-driver-cuda | 535.54.03-1 | {LOCAL}"]
    assert plan(wish, here, madison=vendor)["packages"] == {"nvidia-driver-cuda": "535.54.03-1"}
    other = "local_repository " + "b" * 64
    assert not plan(wish, other, madison=debian)["resolved"], "debs of another SHA256SUMS are brought first"


def test_services_that_may_be_stopped_are_named() -> None:
    probe = [*pci(H100), *installed(OLD), "holder inference.service python3"]
    (problem,) = plan({"version": "535.309.01"}, *probe)["problems"]
    assert "in use by python3 (inference.service)" in problem
    decided = plan({"version": "535.309.01", "services": ["inference.service"]}, *probe)
    assert not decided["problems"]
    assert decided["services"] == ["inference"]


REPOSITORY = {
    "source": "nvidia",
    "repository": "/srv/nvidia-driver-local-repo-debian12-580.105.08_1.0-1_amd64.deb",
    "repository_checksum": "sha256:" + "a" * 64,
    "kernel_modules": False,
}


def test_nvidias_repository_of_another_version_is_not_the_one_asked_for() -> None:
    old = "nvidia-driver-local-repo-debian12-580.95.05"
    probe = [f"dpkg ii |{old}|1.0-1", "dpkg hi |nvidia-driver-cuda|580.95.05-1"]
    offers = [f"nvidia-driver-cuda | 580.95.05-1 | file:/var/{old}  Packages"]
    forward = plan({**REPOSITORY, "version": "580.105.08"}, *probe, madison=offers)
    assert not forward["resolved"]
    assert forward["old_repositories"] == [old]
    assert plan({**REPOSITORY, "version": "580"}, *probe, madison=offers)["resolved"], "the installed one satisfies it"


def test_a_repository_that_was_cut_off_while_it_was_unpacked_is_removed() -> None:
    name = "nvidia-driver-local-repo-debian12-580.95.05"
    smi = f"dpkg iHR|nvidia-driver-cuda|{name[-9:]}-1"
    decided = plan({**REPOSITORY, "version": "580"}, f"dpkg iHR|{name}|1.0-1", smi, madison=[])
    assert decided["cut_first"] == [name, "nvidia-driver-cuda"]
    assert not decided["resolved"]
    decided = plan({"kernel_modules": False}, *installed(NEW), "dpkg iHR|cuda-keyring|1.1-1")
    assert not decided["problems"]
    assert not decided["change"], "it is not the driver's"


def test_a_keyring_of_former_times_is_replaced_by_the_one_that_is_named() -> None:
    wish = {"source": "nvidia", "version": "580", "repository_checksum": "sha256:" + "a" * 64}
    wish["repository"] = "http://mirror/cuda-keyring_1.1-1_all.deb"
    assert plan(wish, "dpkg ii |cuda-keyring|1.0-1")["bring_repository"]
    assert not plan(wish, "dpkg ii |cuda-keyring|1.1-1")["bring_repository"]
    assert not plan(wish, "dpkg ii |cuda-keyring|1.2-1")["bring_repository"]


@pytest.mark.parametrize(
    ("lines", "kernel_modules", "words"),
    [
        (
            ["room /usr / 9000", "room /var / 9000", "room /boot /boot 60", "initrd 60"],
            True,
            "60 MiB free on /boot, 90 w",
        ),
        (["room /usr / 9000", "room /var / 9000", "room /boot /boot 90", "initrd 60"], True, ""),
        (["room /usr / 2000", "room /var / 2000", "room /boot / 2000"], True, "2000 MiB free on /, 2560 wanted"),
        (["room /usr / 2000", "room /var / 2000", "room /boot /boot 1", "initrd 60"], False, ""),
        (["room /usr / 9000", "room /var /var 100", "room /boot / 9000"], False, "100 MiB free on /var, 512 wanted"),
        (["readonly /usr"], True, "/usr cannot be written"),
    ],
)
def test_a_disk_that_would_fill_up_is_refused(lines: list[str], kernel_modules: bool, words: str) -> None:
    problems = plan({"kernel_modules": kernel_modules}, *pci(H100), *lines)["problems"]
    assert words in problems[0] if words else not problems
    here = [f"dpkg hi |{name}|{NEW}" for name in plan()["packages"] if name != "nvidia-persistenced"]
    here.append("dpkg hi |nvidia-persistenced|535.171.04-1~deb12u1")
    assert not plan({}, *pci(H100), *here, *lines)["problems"], "what is installed needs no room"


def test_an_enrolled_key_and_the_legacy_check_are_fine() -> None:
    probe = ["secure_boot on", "key_enrolled yes", f"dpkg ii |nvidia-legacy-check|{NEW}"]
    assert not plan({}, *pci(H100), *probe)["problems"]


def test_a_key_of_ones_own_has_to_be_enrolled(tmp_path: Path) -> None:
    key, certificate = tmp_path / "mok.key", tmp_path / "mok.der"
    key.write_text("key", encoding="utf-8")
    certificate.write_bytes(b"certificate")
    pair = {"mok_key": str(key), "mok_certificate": str(certificate)}
    digest = hashlib.sha1(b"certificate").hexdigest()
    enrolled = "enrolled " + ":".join(re.findall("..", digest)).upper()
    assert not plan(pair, *pci(H100))["problems"], "without Secure Boot nothing has to be enrolled"
    assert not plan(pair, *pci(H100), "secure_boot on", enrolled)["problems"]
    (problem,) = plan(pair, *pci(H100), "secure_boot on", "enrolled 00:11", "key_enrolled yes")["problems"]
    assert f"SHA1 {digest}) is not enrolled; copy it to the host, run mokutil --import" in problem
    assert "go together" in plan({"mok_key": str(key)}, *pci(H100))["problems"][0]
    gone = plan({**pair, "mok_key": "/nowhere"}, *pci(H100))["problems"]
    assert gone == ["nvidia_driver_mok_key is '/nowhere', no such file on the control node"]


@pytest.mark.parametrize(
    ("running", "bootable", "expected"),
    [
        ("6.1.0-50-amd64", [], ["6.1.0-50-amd64", "amd64"]),
        (
            "6.1.0-50-cloud-amd64",
            ["6.1.0-57-cloud-amd64"],
            ["6.1.0-50-cloud-amd64", "6.1.0-57-cloud-amd64", "cloud-amd64"],
        ),
        ("6.12.117+deb13-amd64", [], ["6.12.117+deb13-amd64", "amd64"]),
        ("5.15.0-119-generic", ["5.15.0-99-generic", "5.15.0-119-generic"], ["5.15.0-119-generic", "generic"]),
        ("6.8.0-1021-nvidia-64k", [], ["6.8.0-1021-nvidia-64k", "nvidia-64k"]),
    ],
)
def test_headers_follow_the_running_and_the_newest_kernel(
    running: str, bootable: list[str], expected: list[str]
) -> None:
    assert headers(running, bootable) == [f"linux-headers-{name}" for name in expected]


def test_a_kernel_without_headers_is_refused() -> None:
    assert "linux-headers-6.1.0-40-amd64" in plan(kernel="6.1.0-40-amd64")["problems"][0]


GPU = {"state": "ok", "reason": "", "pci_count": 8, "driver": {"version": "535.309.01", "loaded": None}}
PRESENT = [f"hi |{name}|{NEW}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi")]


@pytest.mark.parametrize(
    ("gpu", "present", "reboot", "wrong", "skipped"),
    [
        ({}, PRESENT, [], "", ""),
        ({}, [*PRESENT[:2], f"ht |nvidia-smi|{NEW}"], [], "", ""),
        ({"driver": {"version": "535.309.06", "loaded": None}}, PRESENT, [], "nvidia-smi says 535.309.06", ""),
        ({"driver": {"version": "535.309.01", "loaded": "535.261.03"}}, PRESENT, [], "the module says 535.261.03", ""),
        ({"state": "no_answer", "reason": "exit 9"}, PRESENT, [], "8 GPUs are on the PCI bus", ""),
        ({"state": "no_answer"}, PRESENT, ["nouveau is loaded"], "", "before the reboot"),
        ({"state": "no_gpu", "pci_count": 0}, PRESENT, [], "", "no NVIDIA GPU on the PCI bus"),
        ({}, PRESENT[:2], [], "not installed at 535.309.01: nvidia-smi", "nvidia-smi not asked"),
    ],
)
def test_the_verdict_says_what_is_wrong_and_what_was_not_asked(
    gpu: dict[str, Any], present: list[str], reboot: list[str], wrong: str, skipped: str
) -> None:
    decided = plan({"kernel_modules": False})
    verdict = nvidia_driver_verdict(decided, gpu={**GPU, **gpu}, present=present, reboot=reboot, kernel_log=[])
    for said, expected in ((verdict["wrong"], wrong), (verdict["skipped"], skipped)):
        assert (expected in " ".join(said)) if expected else not said


def test_in_check_mode_nothing_is_expected_to_be_there() -> None:
    for decided in (plan({"kernel_modules": False}), plan({"kernel_modules": False}, madison=[])):
        for predicted in (True, False):
            verdict = nvidia_driver_verdict(decided, GPU, [], [], [], predicted=predicted)
            assert bool(verdict["wrong"]) != predicted
            assert verdict["skipped"]


ONE_LINE = """\
deb http://mirror/debian bookworm main
deb [signed-by=/k.gpg arch=amd64] http://mirror/debian/ bookworm-updates main contrib  # ours
deb http://other/debian bookworm main
# deb http://mirror/debian bookworm main
"""
DEB822 = """\
Types: deb
URIs: http://mirror/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /k.gpg

Types: deb
URIs: http://other/debian
Suites: bookworm
Components: main
"""


def test_components_are_added_to_one_line_sources() -> None:
    added = apt_components(ONE_LINE, ["http://mirror/debian/"], ["contrib", "non-free"])
    lines = added.splitlines()
    assert lines[0] == "deb http://mirror/debian bookworm main contrib non-free"
    assert lines[1].startswith(
        "deb [signed-by=/k.gpg arch=amd64] http://mirror/debian/ bookworm-updates main contrib non-free"
    )
    assert lines[2:] == ONE_LINE.splitlines()[2:]
    assert apt_components(added, ["http://mirror/debian/"], ["contrib", "non-free"]) == added


def test_components_are_added_to_deb822_sources() -> None:
    added = apt_components(DEB822, ["http://mirror/debian/"], ["contrib", "non-free"])
    assert added == DEB822.replace("Components: main\nSigned", "Components: main contrib non-free\nSigned")
    assert apt_components(added, ["http://mirror/debian/"], ["contrib", "non-free"]) == added
