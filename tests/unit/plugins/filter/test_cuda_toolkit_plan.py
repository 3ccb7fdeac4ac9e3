"""What cuda_toolkit decides: file names, releases, superseded repositories, architectures, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.filter.cuda_toolkit_plan import cuda_toolkit_plan
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_file import FILE
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkit_plan import DISTRIBUTIONS

CHECKSUM = "sha256:" + "a" * 64
FILE_130 = "cuda-repo-debian12-13-0-local_13.0.2-580.95.05-1_amd64.deb"
# Names as NVIDIA published them.
PUBLISHED = [
    "cuda-repo-ubuntu2204-12-4-local_12.4.1-550.54.15-1_amd64.deb",
    "cuda-repo-ubuntu2404-13-2-local_13.2.1-595.58.03-1_amd64.deb",
    "cuda-repo-debian12-12-8-local_12.8.1-570.124.06-1_amd64.deb",
    "cuda-repo-debian13-13-3-local_13.3.0-610.43.02-1_amd64.deb",
]
NO_LINK = {"exists": False}
MANAGED = {
    "exists": True,
    "islnk": True,
    "lnk_target": "/etc/alternatives/cuda",
    "lnk_source": "/usr/local/cuda-12.4",
}


def settings(**changed: Any) -> dict[str, Any]:
    return {
        "version": "13.0",
        "source": "local_repository",
        "local_repository": f"/srv/{FILE_130}",
        "local_repository_checksum": CHECKSUM,
        "keep_local_repository": False,
        "network_keyring_checksum": "",
        "default": True,
        "architectures": [],
        **changed,
    }


def host(**changed: Any) -> dict[str, Any]:
    return {
        "distribution": "Debian",
        "release": "12",
        "machine": "x86_64",
        "dpkg": [],
        "sources": [],
        "link": NO_LINK,
        "gpus": [],
        "candidate": "",
        **changed,
    }


def plan(changed: dict[str, Any] | None = None, file: dict[str, Any] | None = None, **seen: Any) -> dict[str, Any]:
    return cuda_toolkit_plan(settings(**(changed or {})), host(**seen), file=file)


def test_a_bare_host_gets_the_exact_release_that_the_file_holds() -> None:
    decided = plan()
    assert not decided["problems"]
    assert (decided["package"], decided["version"]) == ("cuda-toolkit-13-0", "13.0.2-1")
    assert decided["bring"]
    assert decided["link"] == "/usr/local/cuda-13.0"


def test_what_is_installed_is_not_brought_again() -> None:
    decided = plan(dpkg=["hi |cuda-toolkit-13-0|13.0.2-1", "ii |g++|4:12.2.0-3"])
    assert decided["current"]
    assert decided["compiler"]
    assert not decided["bring"]


def test_a_wish_to_keep_brings_the_repository_though_the_toolkit_is_installed() -> None:
    installed = ["hi |cuda-toolkit-13-0|13.0.2-1"]
    unpacked = [*installed, "ii |cuda-repo-debian12-13-0-local|13.0.2-580.95.05-1"]
    assert plan({"keep_local_repository": True}, dpkg=installed)["bring"]
    assert not plan({"keep_local_repository": True}, dpkg=unpacked)["bring"]


@pytest.mark.parametrize("version", ["", "12", "latest", "13.0.2.1", "13.x"])
def test_there_is_no_floating_version(version: str) -> None:
    (problem,) = plan({"version": version})["problems"]
    assert "cuda_toolkit_version" in problem


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_file_names_are_understood(name: str) -> None:
    match = FILE.fullmatch(name)
    assert match
    assert match[1] in DISTRIBUTIONS.values()


@pytest.mark.parametrize("distro", DISTRIBUTIONS.values())
def test_names_of_distributions_have_nvidias_shape(distro: str) -> None:
    assert FILE.fullmatch(f"cuda-repo-{distro}-12-4-local_12.4.1-550.54.15-1_amd64.deb")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"local_repository": ""}, "cuda_toolkit_local_repository is empty"),
        ({"local_repository": "/srv/cuda.deb"}, "expected NVIDIA's file name"),
        ({"local_repository": f"/srv/{PUBLISHED[0]}"}, "for ubuntu2204; this host is debian12"),
        ({"local_repository": f"/srv/{FILE_130}".replace("amd64", "arm64")}, "for arm64; this host is amd64"),
        ({"version": "13.1"}, "holds 13.0.2"),
        ({"version": "13.0.1"}, "holds 13.0.2"),
        ({"local_repository_checksum": "md5:1"}, "cuda_toolkit_local_repository_checksum is 'md5:1'"),
        ({"source": "network"}, "cuda_toolkit_network_keyring_checksum"),
        ({"source": "distribution"}, "this distribution offers none"),
    ],
)
def test_variables_that_do_not_fit_are_refused(changed: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in plan(changed)["problems"])


@pytest.mark.parametrize(
    ("version", "candidate", "fits"),
    [
        ("11.8", "11.8.89~11.8.0-5~deb12u1", True),
        ("12.4", "12.4.131~12.4.1-2", True),
        ("12.4.1", "12.4.131~12.4.1-2", True),
        ("12.4.131", "12.4.131~12.4.1-2", False),
        ("11.5", "11.5.1-1ubuntu1", True),
        ("12.1", "12.10.131~12.10.1-2", False),
    ],
)
def test_the_distributions_release_is_compared_whole(version: str, candidate: str, fits: bool) -> None:
    decided = plan({"source": "distribution", "version": version}, candidate=candidate)
    assert bool(decided["problems"]) != fits


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"checksum": "b" * 64, "size": 100, "free": [["/", "1000"]] * 3}, "has the checksum"),
        ({"checksum": None, "size": None, "free": []}, "there is no"),
        ({"checksum": None, "size": str(1 << 30), "free": [["/", "9"]] * 3}, "0 MiB free on /, 5120 wanted"),
        ({"checksum": "a" * 64, "size": 1 << 30, "free": [["/", str(4 << 30)]] * 3}, "5120 wanted"),
        (
            {"checksum": "a" * 64, "size": 1 << 30, "free": [["/var", "9"], ["/var", "9"], ["/", "9999999999"]]},
            "2048 w",
        ),
        (
            {"checksum": None, "size": 9, "free": [["/", "1000"]] * 3, "readonly": ["/usr/local"]},
            "/usr/local cannot be written",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(file: dict[str, Any], words: str) -> None:
    (problem,) = plan(file=file)["problems"]
    assert words in problem


def test_room_is_counted_by_file_system() -> None:
    free = [["/var/cache", str(1 << 30)], ["/var", str(1 << 30)], ["/", str(3 << 30)]]
    assert not plan(file={"checksum": "a" * 64, "size": 1 << 30, "free": free})["problems"]


def test_other_local_repositories_are_superseded_and_ours_is_not() -> None:
    ours = "/etc/apt/sources.list.d/cuda-debian12-13-0-local.list"
    other = "/etc/apt/sources.list.d/cuda-debian12-12-4-local.list"
    decided = plan(
        dpkg=["rc |cuda-repo-debian12-12-4-local|12.4.1-1", "ii |cuda-repo-debian12-13-0-local|13.0.2-580.95.05-1"],
        sources=[f"{name}:deb file:///var/cuda-repo-x /" for name in (ours, other, "/etc/apt/sources.list")],
    )
    assert decided["old_packages"] == ["cuda-repo-debian12-12-4-local"]
    assert decided["old_files"] == [other]
    assert [entry["path"] for entry in decided["old_entries"]] == ["/etc/apt/sources.list"]
    assert decided["unpacked"]


MIXED = ["Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm", "Components: main"]
CUDA_PARAGRAPH = ["Types: deb", "URIs: file:///var/cuda-repo-debian12-12-4-local", "Suites: /"]


@pytest.mark.parametrize(
    ("name", "lines", "files", "entries", "problems"),
    [
        ("old.list", ["deb file:/var/cuda-repo-x /"], 1, 0, 0),
        ("all.list", ["deb file:/var/cuda-repo-x /", "deb http://mirror.example/debian bookworm main"], 0, 1, 0),
        ("own.list", ["deb http://mirror.example/debian bookworm main", "# deb file:/var/cuda-repo-x /"], 0, 0, 0),
        ("old.sources", CUDA_PARAGRAPH, 1, 0, 0),
        ("all.sources", [*MIXED, *CUDA_PARAGRAPH], 0, 0, 1),
        ("next.sources", ["Types: deb", "URIs:", " file:///var/cuda-repo-x", "Suites: /"], 1, 0, 0),
    ],
)
def test_other_repositories_stay_in_a_file_that_names_ours_too(
    name: str, lines: list[str], files: int, entries: int, problems: int
) -> None:
    path = f"/etc/apt/sources.list.d/{name}"
    decided = plan(sources=[f"{path}:{line}" for line in lines])
    found = (len(decided["old_files"]), len(decided["old_entries"]), len(decided["problems"]))
    assert found == (files, entries, problems)
    assert all(path in text for text in (*decided["old_files"], *decided["problems"]))
    for entry in decided["old_entries"]:
        assert [line for line in lines if not re.search(entry["regexp"], line)] == lines[1:]


def test_a_foreign_default_is_refused_unless_it_may_stay() -> None:
    by_hand = {"exists": True, "islnk": True, "lnk_target": "cuda-11.0", "lnk_source": "/usr/local/cuda-11.0"}
    assert "a link to cuda-11.0" in plan(link=by_hand)["problems"][0]
    assert "not a link" in plan(link={"exists": True, "islnk": False})["problems"][0]
    assert not plan({"default": False}, link=by_hand)["problems"]


def test_a_second_release_leaves_the_default_where_it_is() -> None:
    assert plan({"default": False}, link=MANAGED)["link"] == "/usr/local/cuda-12.4"
    assert plan({"default": False})["link"] == ""


def test_going_back_is_refused() -> None:
    assert "newer than 13.0.2-1" in plan(dpkg=["hi |cuda-toolkit-13-0|13.0.10-1"])["problems"][0]


@pytest.mark.parametrize(
    ("gpu", "version", "architectures", "refused"),
    [
        (("Hopper", "NVIDIA H100 80GB HBM3"), "13.0", ["90"], False),
        (("Volta", "Tesla V100-SXM2-32GB"), "13.0", ["70"], True),
        (("Blackwell", "NVIDIA B200"), "13.0", ["100"], False),
        (("Blackwell", "NVIDIA GeForce RTX 5090"), "13.0", ["120"], False),
        ((None, None), "13.0", ["90"], False),
    ],
)
def test_architectures_come_from_the_gpus(
    gpu: tuple[str, str], version: str, architectures: list[str], refused: bool
) -> None:
    decided = plan({"version": version}, gpus=[{"architecture": gpu[0], "name": gpu[1]}])
    assert decided["architectures"] == architectures
    assert bool(decided["problems"]) == refused


def test_blackwell_needs_a_newer_release() -> None:
    old = PUBLISHED[0].replace("ubuntu2204", "debian12")
    decided = plan(
        {"version": "12.4", "local_repository": old}, gpus=[{"architecture": "Blackwell", "name": "NVIDIA B200"}]
    )
    (problem,) = decided["problems"]
    assert problem.startswith(
        "NVIDIA B200 (Blackwell) needs CUDA 12.8 or newer, not 12.4 (cuda_toolkit_version); what works"
    )


@pytest.mark.parametrize(
    ("changed", "driver", "refused"),
    [({}, "535.309.01", True), ({"driver": "580"}, "535.309.01", False), ({"driver": "550"}, "", True)],
)
def test_a_driver_that_cannot_run_it_is_refused_unless_it_only_compiles(
    changed: dict[str, Any], driver: str, refused: bool
) -> None:
    assert bool(plan(changed, driver=driver)["problems"]) == refused
    assert not plan({**changed, "run_kernel": False}, driver=driver)["problems"]


def test_a_keyring_on_the_node_is_left_alone() -> None:
    decided = plan({"source": "network"}, dpkg=["ii |cuda-keyring|1.2-1"])
    assert not decided["problems"]
    assert not decided["bring_keyring"]


def test_what_was_cut_off_while_it_was_unpacked_is_named_and_not_taken_for_installed() -> None:
    decided = plan(dpkg=["iHR|cuda-repo-debian12-13-0-local|13.0.2-580.95.05-1", "iiR|cuda-nvcc-13-0|13.0.88-1"])
    assert decided["cut"] == ["cuda-repo-debian12-13-0-local", "cuda-nvcc-13-0"]
    assert decided["bring"]


def test_a_part_that_was_cut_off_after_all_was_complete_is_brought_again() -> None:
    whole = ["hi |cuda-toolkit-13-0|13.0.2-1", "hi |cuda-cudart-13-0|13.0.96-1"]
    assert plan(dpkg=whole)["current"]
    decided = plan({"keep_local_repository": False}, dpkg=[*whole, "hHR|cuda-nvcc-13-0|13.0.88-1"])
    assert (decided["current"], decided["cut"], decided["bring"]) == (False, ["cuda-nvcc-13-0"], True)
    assert decided["held"] == ["cuda-toolkit-13-0", "cuda-cudart-13-0"]
    other = ["hi |cuda-toolkit-13-1|13.1.1-1", "hi |cuda-toolkit-13-1-config-common|13.1.80-1"]
    decided = plan(dpkg=[*whole, *other, "iHR|cuda-nvcc-13-1|13.1.80-1"])
    assert (decided["current"], decided["bring"]) == (True, False)
    assert decided["held"] == ["cuda-toolkit-13-1", "cuda-toolkit-13-1-config-common"], "that release goes whole"


def test_another_build_of_a_release_lets_go_of_what_the_first_one_held() -> None:
    assert plan(dpkg=["hi |cuda-toolkit-13-0|13.0.2-1"])["held"] == []
    older = ["hi |cuda-toolkit-13-0|13.0.1-1", "ht |libcublas-13-0|13.0.1-1", "hi |libcublas-13-1|13.1.0-1"]
    others = ["ii |cuda-crt-13-0|13.0.1-1", "hn |libnpp-13-0|", "hHR|cuda-nvcc-13-0|13.0.1-1"]
    assert plan(dpkg=older + others)["held"] == ["cuda-toolkit-13-0", "libcublas-13-0"]


def test_what_is_not_cudas_is_not_removed_though_it_was_cut_off() -> None:
    names = ["libcurl4", "libnl-3-200", "libcups2", "g++", "libnpp-12-4", "cuda-keyring"]
    assert plan(dpkg=[f"iHR|{name}|1" for name in names])["cut"] == ["libnpp-12-4", "cuda-keyring"]


def test_a_keyring_of_former_times_is_replaced_by_the_one_that_is_named() -> None:
    old = ["ii |cuda-keyring|1.0-1"]
    wish = {"source": "network", "network_keyring_checksum": CHECKSUM}
    assert plan(wish, dpkg=old)["bring_keyring"], "NVIDIA's present one is 1.1-1"
    named = {**wish, "network_keyring": "http://mirror.example/cuda-keyring_1.0-1_all.deb"}
    assert not plan(named, dpkg=old)["bring_keyring"]
    (problem,) = plan({"source": "network"}, dpkg=old)["problems"]
    assert "cuda_toolkit_network_keyring_checksum is ''" in problem


def test_other_sources_of_the_network_repository_are_removed() -> None:
    line = "deb https://developer.example/compute/cuda/repos/debian12/x86_64/ /"
    own, old = (f"/etc/apt/sources.list.d/{name}.list" for name in ("cuda-debian12-x86_64", "cuda"))
    seen = [f"{own}:deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {line[4:]}", f"{old}:{line}"]
    wish = {"source": "network", "network_keyring_checksum": CHECKSUM}
    assert plan(wish, sources=seen)["old_files"] == [old]
    assert plan(sources=seen)["old_files"] == [], "a local repository has nothing against it"
    (problem,) = plan(wish, sources=[f"/etc/apt/sources.list:{line}"])["problems"]
    assert "/etc/apt/sources.list names NVIDIA's CUDA repository" in problem
    assert not plan(wish, sources=[f"/etc/apt/sources.list:# {line}"])["problems"]


def test_gpus_without_a_driver_are_known_by_their_numbers_on_the_bus() -> None:
    for device, architectures, refused in (("1db6", ["70"], True), ("2330", ["90"], False)):
        bus = [f"/sys/bus/pci/devices/0000:1b:00.0/{line}" for line in ("vendor:0x10de", f"device:0x{device}")]
        decided = plan(pci=[*bus, "/sys/bus/pci/devices/0000:1b:00.0/class:0x030200"])
        assert decided["architectures"] == architectures
        assert bool(decided["problems"]) == refused
