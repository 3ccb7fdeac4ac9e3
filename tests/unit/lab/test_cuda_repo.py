"""The simulated CUDA repository has NVIDIA's shape: what floats brings drivers, what is versioned does not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.lab.cuda_repo.build import DRIVERS, HERE, Package, cuda_packages, index, local_repository, pin, sign

WHEELS = ("bin/nvcc", "bin/crt/link.stub", "nvvm/bin/cicc", "include/crt/x.h", "include/cuda.h", "include/nv/target")


def packages(distro: str = "debian12") -> dict[str, Package]:
    wheels = {path: (b"", 0o644) for path in (*WHEELS, "lib/libcudart.so.13", "lib/libcudadevrt.a")}
    return {package.name: package for package in cuda_packages("13.0.2", "580.95.05", distro, wheels)}


def closure(name: str, known: dict[str, Package]) -> set[str]:
    names = {word.split()[0] for word in known[name].depends.split(", ") if word}
    return names.union(*(closure(dependency, known) for dependency in names))


def test_only_what_floats_brings_a_driver() -> None:
    known = packages()
    assert "nvidia-driver" in closure("cuda", known)
    assert not {"nvidia-driver", "cuda-drivers"} & closure("cuda-toolkit-13-0", known)


def test_everything_that_a_package_needs_is_there() -> None:
    for distro in ("debian12", "ubuntu2404"):
        known = packages(distro)
        for name in known:
            assert closure(name, known) <= set(known)


def test_files_are_where_nvidia_has_them() -> None:
    files = {path for package in packages().values() for path in package.files}
    assert "/usr/local/cuda-13.0/bin/nvcc" in files
    assert "/usr/local/cuda-13.0/targets/x86_64-linux/include/cuda.h" in files


@pytest.mark.parametrize("cuda", DRIVERS)
def test_wheels_are_locked_with_hashes(cuda: str) -> None:
    lines = (HERE / f"requirements-{cuda.rpartition('.')[0]}.txt").read_text().splitlines()
    wheels = [line for line in lines if not line.startswith("#")]
    assert len(wheels) == 5
    assert all(re.fullmatch(r"nvidia-[a-z-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}", line) for line in wheels)


@pytest.mark.skipif(not (shutil.which("dpkg-deb") and shutil.which("gpg")), reason="needs dpkg-deb and gpg")
def test_a_repository_is_signed_by_a_key_of_its_own(tmp_path: Path) -> None:
    index([Package("cuda", "1-1")], tmp_path)
    keys = {sign(tmp_path), sign(tmp_path)}
    assert len(keys) == 2
    assert all((tmp_path / f"cuda-{key}-keyring.gpg").stat().st_size for key in keys)
    carrier = local_repository("cuda-repo-x-1-0-local", "1.0.0-1-1", "x", "1-0", [Package("cuda", "1-1")])
    (source,) = carrier.conffiles
    assert re.search(r"signed-by=/usr/share/keyrings/cuda-[0-9A-F]{8}-keyring\.gpg", carrier.files[source][0].decode())


def test_the_pin_prefers_the_repository() -> None:
    assert "Pin: release l=NVIDIA CUDA\nPin-Priority: 600" in pin()
