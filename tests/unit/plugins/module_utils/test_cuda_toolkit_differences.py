"""The role cuda_toolkit changes something exactly where one thing is not as it should be."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkit_differences import PIN, differences
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkit_plan import cuda_toolkit_plan

CHECKSUM = "sha256:" + "a" * 64
REPOSITORY = "cuda-repo-debian12-13-0-local"
UNPACKED = f"ii |{REPOSITORY}|13.0.2-580.95.05-1"
PROFILE = "/etc/profile.d/gpuops-cuda.sh"
PREFIX = "/usr/local/cuda-13.0"
WANTED = {PROFILE: "0644 aa", PIN: "0644 bb"}
LINK = {"exists": True, "islnk": True, "lnk_target": "/etc/alternatives/cuda", "lnk_source": PREFIX}
TOOLKIT = ["hi |cuda-toolkit-13-0|13.0.2-1", "hi |cuda-nvcc-13-0|13.0.88-1"]
SOURCE = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
SETTINGS = {
    "version": "13.0",
    "source": "local_repository",
    "local_repository": "/srv/cuda-repo-debian12-13-0-local_13.0.2-580.95.05-1_amd64.deb",
    "local_repository_checksum": CHECKSUM,
    "keep_local_repository": False,
    "network_keyring_checksum": CHECKSUM,
    "default": True,
    "architectures": [],
}
SEEN: dict[str, Any] = {
    "distribution": "Debian",
    "release": "12",
    "machine": "x86_64",
    "gpus": [],
    "dpkg": ["ii |g++|4:12.2.0-3", *TOOLKIT],
    "family": TOOLKIT,
    "sources": [],
    "link": LINK,
    "interrupted": False,
    "candidate": "",
    "nvcc": [f"{PREFIX}/bin/nvcc"],
    "alternatives": ["Name: cuda", f"Value: {PREFIX}", "", f"Alternative: {PREFIX}", "Priority: 50"],
    "files": dict(WANTED),
    "repositories": {},
    "keyrings": {},
    "owned": [],
    "source_files": [],
}
KEPT = {
    "dpkg": [*SEEN["dpkg"], UNPACKED],
    "repositories": {REPOSITORY: {"cuda-AB-keyring.gpg": "0600 cc"}},
    "keyrings": {"cuda-AB-keyring.gpg": "0644 cc"},
}
NETWORK = {
    "dpkg": [*SEEN["dpkg"], "ii |cuda-keyring|1.1-1"],
    "owned": ["/.", SOURCE],
    "source_files": [SOURCE],
}


def found(changed: dict[str, Any] | None = None, **seen: Any) -> list[str]:
    settings, host = {**SETTINGS, **(changed or {})}, {**SEEN, **seen}
    plan = cuda_toolkit_plan(settings, host)
    assert not plan["problems"]
    return differences(settings, plan, host, WANTED)


def test_a_host_as_it_should_be() -> None:
    assert found() == []
    assert found({"keep_local_repository": True}, **KEPT) == []
    assert found({"source": "network"}, **NETWORK) == []
    assert found({"source": "network"}, **{**NETWORK, "dpkg": [*SEEN["dpkg"], "ii |cuda-keyring|1.2-1"]}) == []


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ({"interrupted": True}, "dpkg was interrupted"),
        ({"dpkg": TOOLKIT}, "g++ is not installed"),
        ({"dpkg": ["ii |g++|1", "hi |cuda-toolkit-13-0|13.0.1-1"]}, "cuda-toolkit-13-0 13.0.2-1 is not installed"),
        ({"dpkg": [*SEEN["dpkg"], "iHR|cuda-nvrtc-13-0|13.0.88-1"]}, "cuda-nvrtc-13-0 was cut off"),
        ({"family": [TOOLKIT[0], "ii |cuda-nvcc-13-0|13.0.88-1"]}, "cuda-nvcc-13-0 is not held"),
        ({"family": [TOOLKIT[0], "it |cuda-nvcc-13-0|13.0.88-1"]}, "cuda-nvcc-13-0 is not held"),
        ({"dpkg": [*SEEN["dpkg"], "rc |cuda-repo-debian12-12-9-local|12.9.1"]}, "cuda-repo-debian12-12-9-local names"),
        ({"sources": ["/etc/apt/sources.list.d/a.list:deb file:///var/cuda-repo-x /"]}, "a.list names"),
        ({"dpkg": [*SEEN["dpkg"], UNPACKED]}, f"{REPOSITORY} is still there"),
        ({"dpkg": [*SEEN["dpkg"], UNPACKED.replace("ii", "rc")]}, f"{REPOSITORY} is still there"),
        ({"repositories": {REPOSITORY: {}}}, f"{REPOSITORY} is still there"),
        ({"alternatives": []}, f"/usr/local/cuda is not {PREFIX}"),
        ({"alternatives": [f"Alternative: {PREFIX}", "Value: /usr/local/cuda-12.4"]}, "/usr/local/cuda is not"),
        ({"alternatives": [f"Value: {PREFIX}", "Alternative: /usr/local/cuda-12.4"]}, "/usr/local/cuda is not"),
        ({"files": {**WANTED, PROFILE: "0600 aa"}}, PROFILE),
        ({"files": {**WANTED, PIN: ""}}, PIN),
    ],
)
def test_one_thing_is_named(seen: dict[str, Any], named: str) -> None:
    first, *others = found(**seen)
    assert named in first
    # What is not installed has to be brought, too.
    assert all("is not" in line for line in others)


def test_what_others_do_is_none_of_ours() -> None:
    assert found(files={**WANTED, PIN: "0644 cc"}, owned=["cuda-repo-x: /etc/apt/preferences.d/…"]) == []
    assert found(family=[*TOOLKIT, "rc |cuda-nvrtc-13-0|1", "un |cuda-x-13-0|"]) == []
    assert found(repositories={"cuda-repo-debian12-12-9-local": {}}) == []
    # Without a compiler nothing is linked; the package that should have brought it is found missing by the proof.
    assert found(nvcc=[], alternatives=[]) == []


def test_a_second_version_leaves_the_link_where_it_is_and_keeps_it_there() -> None:
    other = {"link": {**LINK, "lnk_source": "/usr/local/cuda-12.4"}}
    automatic = ["Value: /usr/local/cuda-12.4", "Alternative: /usr/local/cuda-12.4"]
    assert found({"default": False}, **other, alternatives=automatic) == []
    assert found({"default": False}, **other) == ["/usr/local/cuda is not /usr/local/cuda-12.4"]
    assert found({"default": False}, link={"exists": False}, alternatives=[]) == []


def test_a_repository_that_is_kept() -> None:
    keep = {"keep_local_repository": True}
    assert found(keep) == [f"{REPOSITORY} is not unpacked"]
    assert found(keep, **{**KEPT, "keyrings": {}}) == ["/usr/share/keyrings/cuda-AB-keyring.gpg"]
    for state in ("0600 cc", "0644 dd"):
        assert found(keep, **{**KEPT, "keyrings": {"cuda-AB-keyring.gpg": state}})
    assert found(keep, **{**KEPT, "repositories": {REPOSITORY: {}}}) == [f"/var/{REPOSITORY} has no keyring"]


def test_the_network_repository() -> None:
    network = {"source": "network"}
    assert found(network) == ["cuda-keyring is not installed"]
    twin = SOURCE[: -len("list")] + "sources"
    assert found(network, **{**NETWORK, "source_files": [SOURCE, twin]}) == [f"{twin} is not cuda-keyring's"]
    # Keys and pins of a local repository are not looked at.
    assert found(network, **NETWORK, keyrings={"cuda-AB-keyring.gpg": ""}) == []


def test_the_distributions_toolkit_has_no_link() -> None:
    installed = {"dpkg": ["ii |g++|1", "hi |nvidia-cuda-toolkit|13.0.1-1"], "candidate": "13.0.1-1"}
    assert found({"source": "distribution"}, **installed, alternatives=[], family=[]) == []
