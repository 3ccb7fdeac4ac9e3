"""What `molecule test -s cuda_toolkit` expects: two releases from local repositories, and nothing else of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

Host = Any
PROJECT = Path(__file__).parents[2]
RELEASES = ("13.0", "13.1")


@pytest.mark.parametrize("release", RELEASES)
def test_nvcc_is_the_release_that_was_asked_for(n1: Host, release: str) -> None:
    assert f"release {release}," in n1.check_output("/usr/local/cuda-%s/bin/nvcc --version", release)


def test_the_default_stays_where_it_was(n1: Host) -> None:
    assert n1.file("/usr/local/cuda").linked_to == "/usr/local/cuda-13.0"
    assert "release 13.0," in n1.check_output("bash -lc 'nvcc --version'")


PROGRAM = """
#include <cstdio>
int main() { int version = 0; cudaRuntimeGetVersion(&version); std::printf("%d", version); }
"""


def test_a_program_is_compiled_and_finds_the_runtime_library(n1: Host) -> None:
    n1.check_output("printf %%s %s > /tmp/version.cu", PROGRAM)
    n1.check_output("bash -lc 'nvcc --cudart shared -o /tmp/version /tmp/version.cu'")
    assert n1.check_output("/tmp/version") == "13000"


@pytest.mark.parametrize("release", RELEASES)
def test_every_package_of_a_release_is_held(n1: Host, release: str) -> None:
    suffix = release.replace(".", "-")
    query = "dpkg-query --show --showformat '${db:Status-Abbrev}|${Package}\\n' '*-%s' 'cuda-toolkit-%s-*' | grep ^.i"
    states = n1.check_output(query, suffix, suffix).splitlines()
    assert len(states) >= 8
    assert all(line.startswith("hi") for line in states), states


def test_nothing_of_the_repositories_is_left(n1: Host) -> None:
    assert not n1.check_output("ls /var | grep cuda-repo || true")
    assert not n1.check_output("ls /etc/apt/sources.list.d | grep cuda || true")
    assert not n1.check_output("ls /usr/share/keyrings /var/cache | grep cuda || true")
    assert n1.run("dpkg-query --show 'cuda-repo-*'").rc != 0


def test_other_repositories_of_the_same_file_stayed(n1: Host) -> None:
    lines = n1.file("/etc/apt/sources.list").content_string
    assert "cuda-repo" not in lines
    assert " main" in lines


def test_apt_works_and_an_upgrade_changes_nothing_of_cuda(n1: Host) -> None:
    update = n1.run("apt-get update")
    assert update.rc == 0, update.stderr
    assert "cuda" not in update.stderr
    assert "cuda" not in n1.check_output("apt-get --simulate dist-upgrade | grep ^Inst || true")


def test_no_driver_and_no_floating_package_came_along(n1: Host) -> None:
    for package in ("cuda", "cuda-drivers", "cuda-runtime-13-0", "cuda-toolkit", "nvidia-driver"):
        assert not n1.package(package).is_installed, package


def test_pins_are_in_place(n1: Host) -> None:
    assert "Pin: release l=NVIDIA CUDA" in n1.file("/etc/apt/preferences.d/cuda-repository-pin-600").content_string
    assert "Pin-Priority: -1" in n1.file("/etc/apt/preferences.d/60-gpuops-cuda-toolkit").content_string


def test_dpkg_has_finished_what_it_was_interrupted_in(n1: Host) -> None:
    assert n1.check_output("dpkg --audit; find /var/lib/dpkg/updates -name '[0-9]*'") == ""


# A part of the second release is installed once more, and that is killed in the middle.
KILLED = """
set -e
rm -rf /root/parts && dpkg-deb --extract /root/cuda-repo-debian12-13-1-local_*.deb /root/parts
dpkg --force-hold --install /root/parts/var/cuda-repo-*/cuda-nvcc-13-1_*.deb >/dev/null & process=$!
until find /usr/local/cuda-13.1 -name '*.dpkg-new' | grep -q .; do kill -0 $process || exit 1; done
kill -KILL $process
wait $process || rm -r /root/parts
dpkg-query --show --showformat '${db:Status-Abbrev}' cuda-nvcc-13-1
"""


def test_a_part_whose_reinstallation_was_killed_is_brought_again(n1: Host) -> None:
    assert n1.check_output(KILLED).endswith("R")
    for changes in (True, False):
        done = subprocess.run(
            ["ansible-playbook", "-i", "inventories/lab", "molecule/cuda_toolkit/converge.yml"],
            cwd=PROJECT,
            env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("changed=0 " in done.stdout) is not changes, done.stdout
    for release in RELEASES:
        test_nvcc_is_the_release_that_was_asked_for(n1, release)
        test_every_package_of_a_release_is_held(n1, release)
    test_nothing_of_the_repositories_is_left(n1)
