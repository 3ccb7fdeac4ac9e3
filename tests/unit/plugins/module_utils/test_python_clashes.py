# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gets into an environment from outside: found, and named by file and effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._python_clashes import clashes

CACHE = (
    "\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2\n\tlibc.so.6 (libc6) => /lib/libc.so.6\n"
)


class Host:
    """A root file system of files, and what its login shell and its loader say."""

    def __init__(self, root: Path) -> None:
        self.root, self.login, self.cache = root, {"PATH": "/usr/bin:/bin"}, ""

    def file(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run(self, command: list[str]) -> tuple[int, str, str]:
        if command[0] == "ldconfig":
            return 0, self.cache, ""
        return 0, "".join(f"{name}={value}\0" for name, value in self.login.items()), ""

    def found(self) -> list[str]:
        return clashes(str(self.root), self.run)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_clean_host_has_none(host: Host) -> None:
    host.file("etc/profile.d/gpuops-pytorch.sh", 'PATH="$PATH:/opt/gpuops/envs/torch/bin"\n')
    host.file("root/.local/lib/python3.11/site-packages/black/__init__.py")
    assert host.found() == []


def test_library_path_is_named_with_its_file_and_what_it_hides(host: Host) -> None:
    host.file("etc/profile.d/hpcx.sh", "# MPI\nexport LD_LIBRARY_PATH=/opt/hpcx/lib:/opt/none\n")
    host.file("opt/hpcx/lib/libnccl.so.2.18.1")
    host.login["LD_LIBRARY_PATH"] = "/opt/hpcx/lib:/opt/none"
    assert host.found()[0] == (
        "/etc/profile.d/hpcx.sh sets LD_LIBRARY_PATH=/opt/hpcx/lib:/opt/none, "
        "which puts libnccl.so in /opt/hpcx/lib before those of the environments"
    )


def test_variable_of_unknown_origin(host: Host) -> None:
    host.login["PYTHONPATH"] = "/opt/tools"
    assert host.found() == ["a login shell has PYTHONPATH=/opt/tools"]


def test_a_second_nccl(host: Host) -> None:
    host.cache = CACHE
    host.file("opt/hpcx/nccl_rdma/lib/libnccl.so.2.18.1")
    assert host.found() == [
        "NCCL outside of the environments: /usr/lib/x86_64-linux-gnu/libnccl.so.2",
        "NCCL outside of the environments: /opt/hpcx/nccl_rdma/lib/libnccl.so.2.18.1",
    ]


@pytest.mark.parametrize(
    ("login", "words"),
    [
        ({"CONDA_PREFIX": "/opt/conda"}, "conda's /opt/conda active"),
        ({"PATH": "/root/miniconda3/bin:/usr/bin"}, "conda's /root/miniconda3/bin active"),
        ({"PATH": "/opt/miniforge3/condabin:/usr/bin"}, "active"),
    ],
)
def test_conda_in_login_shells(host: Host, login: dict[str, str], words: str) -> None:
    host.login.update(login)
    assert [words in line for line in host.found()] == [True]


def test_conda_that_only_interactive_shells_get(host: Host) -> None:
    host.file("etc/profile.d/conda.sh", ". /opt/conda/etc/profile.d/conda.sh\n")
    assert host.found() == ["/etc/profile.d/conda.sh starts conda in login shells"]


def test_packages_of_users(host: Host) -> None:
    for name in ("torch", "numpy", "black"):
        host.file(f"home/alice/.local/lib/python3.11/site-packages/{name}/__init__.py")
    assert host.found() == ["/home/alice/.local/lib/python3.11/site-packages has numpy, torch of its own"]
