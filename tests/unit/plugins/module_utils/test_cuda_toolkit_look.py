"""What the role cuda_toolkit reads from a host, with a root of its own and tools that answer as told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _cuda_toolkit_look as look
from ansible_collections.gpuops.cluster.plugins.module_utils import _package_index

Answers = dict[str, tuple[int, str, str]]


def tools(asked: list[list[str]], answers: Answers) -> look.Run:
    def run(argv: list[str], **_options: Any) -> tuple[int, str, str]:
        asked.append(argv)
        return next((said for words, said in answers.items() if words in " ".join(argv)), (0, "", ""))

    return run


def write(root: Path, path: str, content: str = "", mode: int = 0o644) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")
    file.chmod(mode)


def test_a_host_with_a_repository_left_behind(tmp_path: Path) -> None:
    write(tmp_path, "/var/lib/dpkg/updates/0001")
    write(tmp_path, "/usr/local/cuda-13.0/bin/nvcc")
    write(tmp_path, "/var/cuda-repo-debian12-13-0-local/cuda-AB-keyring.gpg", "key", 0o600)
    write(tmp_path, "/var/cuda-repo-debian12-13-0-local/Packages")
    write(tmp_path, "/usr/share/keyrings/cuda-AB-keyring.gpg", "key")
    write(tmp_path, "/usr/share/keyrings/debian.gpg")
    write(tmp_path, "/etc/profile.d/a.sh", "text")
    (tmp_path / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
    asked: list[list[str]] = []
    run = tools(asked, {"g++ cuda-*": (1, "hi |cuda-x|1\n", "no packages found"), "*-13-0": (0, "ii |b-13-0|1\n", "")})
    files = ["/etc/profile.d/a.sh", "/etc/none"]
    seen = look.look(run, "local_repository", ["*-13-0"], files, False, look.Places(str(tmp_path)))
    assert seen["interrupted"] is True
    assert seen["nvcc"] == ["/usr/local/cuda-13.0/bin/nvcc"]
    (state,) = seen["repositories"]["cuda-repo-debian12-13-0-local"].values()
    assert state.startswith("0600 ")
    assert list(seen["keyrings"]) == ["cuda-AB-keyring.gpg"]
    assert seen["keyrings"]["cuda-AB-keyring.gpg"] == state.replace("0600", "0644")
    assert seen["files"]["/etc/profile.d/a.sh"].startswith("0644 ") and seen["files"]["/etc/none"] == ""
    assert (seen["dpkg"], seen["family"]) == (["hi |cuda-x|1"], ["ii |b-13-0|1"])
    assert seen["link"]["lnk_target"] == "/etc/alternatives/cuda"
    assert not any("--listfiles" in argv or argv[0] == "apt-cache" for argv in asked)
    assert not any("sys/bus/pci" in " ".join(argv) for argv in asked)


def test_a_bare_host(tmp_path: Path) -> None:
    run = tools(
        [], {"--listfiles": (1, "", "not installed"), "--query": (2, "", "no alternatives"), "grep -H .": (2, "p", "")}
    )
    seen = look.look(run, "network", [], [], True, look.Places(str(tmp_path)))
    assert seen["link"] == {"exists": False}
    assert seen["pci"] == ["p"]
    assert not any(seen[key] for key in ("interrupted", "nvcc", "alternatives", "repositories", "keyrings", "owned"))


def test_what_is_no_link_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda").mkdir(parents=True)
    assert look.link_state(str(tmp_path / "usr/local/cuda")) == {"exists": True, "islnk": False}


def test_a_tool_that_fails_is_named() -> None:
    run = tools([], {"dpkg-query": (2, "", "dpkg-query: error: database is locked\n")})
    with pytest.raises(look.Trouble, match="dpkg-query --show says: dpkg-query: error: database is locked"):
        look.look(run, "network", [], [], False, look.Places("/nowhere"))


POLICY = "nvidia-cuda-toolkit:\n  Installed: (none)\n  Candidate: 11.8.89~11.8.0-5~deb12u1\n  Version table:\n"


def test_the_distributions_offer_takes_package_lists(tmp_path: Path) -> None:
    lists = _package_index.Places(lists=str(tmp_path))
    asked: list[list[str]] = []
    run = tools(asked, {"policy": (0, POLICY, "")})
    assert look.candidate(run, lists) == "11.8.89~11.8.0-5~deb12u1"
    assert [argv[0] for argv in asked] == ["apt-get", "apt-cache"]
    (tmp_path / "x_Packages.lz4").touch()
    asked.clear()
    assert look.candidate(tools(asked, {}), lists) == ""
    assert [argv[0] for argv in asked] == ["apt-cache"]
