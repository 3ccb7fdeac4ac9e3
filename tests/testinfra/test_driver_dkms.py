"""What `molecule test -s driver_dkms` expects: modules that dkms really built, and nothing of the build that failed."""

from __future__ import annotations

from typing import Any

import pytest

Host = Any
VERSION = "535.309.01"


@pytest.fixture(scope="module")
def kernel(n1: Host) -> str:
    """The kernel of the newest headers; the one that runs is the machine's."""
    depends = n1.check_output("apt-cache depends linux-headers-amd64")
    return str(
        next(line.split("linux-headers-")[1] for line in depends.splitlines() if "Depends: linux-headers-" in line)
    )


def test_dkms_built_the_modules_for_the_kernel_of_the_headers(n1: Host, kernel: str) -> None:
    status = n1.check_output("dkms status")
    assert f"nvidia-current/{VERSION}, {kernel}, x86_64: installed" in status
    assert "open" not in status


def test_the_modules_are_of_this_kernel_and_version(n1: Host, kernel: str) -> None:
    path = n1.check_output("find /lib/modules/%s/updates/dkms -name 'nvidia-current.ko*'", kernel)
    assert path
    assert n1.check_output("modinfo -F version %s", path) == VERSION
    assert n1.check_output("modinfo -F vermagic %s", path).startswith(f"{kernel} ")


def test_nothing_is_left_of_the_build_that_failed(n1: Host) -> None:
    assert not n1.package("nvidia-open-kernel-dkms").is_installed
    assert n1.check_output("dpkg --audit") == ""
    assert n1.run("apt-get check").rc == 0
    assert not n1.file("/var/lib/dkms/nvidia-current-open").exists


def test_the_modules_are_held_like_the_rest(n1: Host) -> None:
    assert "nvidia-kernel-dkms" in n1.check_output("apt-mark showhold").split()


def test_nouveau_is_kept_away(n1: Host) -> None:
    assert "blacklist nouveau" in n1.check_output("modprobe --showconfig | grep nouveau")


def test_they_are_signed_with_the_pair_that_was_given(n1: Host, kernel: str) -> None:
    path = n1.check_output("find /lib/modules/%s/updates/dkms -name 'nvidia-current.ko*'", kernel)
    assert n1.check_output("modinfo -F signer %s", path) == "gpuops lab"
    assert n1.file("/var/lib/dkms/mok.key").mode == 0o600
