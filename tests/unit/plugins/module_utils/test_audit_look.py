# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the audit makes of one host: recordings of nvidia-smi, a synthetic sysfs, and files as packages leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _audit_look, _audit_software, _fabric_facts
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures, pci_tree, rdma_tree
from ansible_collections.gpuops.cluster.tests.unit.support.replay import NOWHERE, facts_of

H100 = "h100-sxm5-8x-driver570.86.xml"
NO_FABRIC: dict[str, Any] = {"ethernet": [], "rdma": [], "problems": []}


def versions(root: Path, gpu: dict[str, Any] | None = None, fabric: dict[str, Any] | None = None) -> dict[str, Any]:
    gpu = gpu or facts_of(b"")
    return _audit_look.versions(gpu, fabric or NO_FABRIC, str(root / "opt/gpuops/envs"), str(root))


def installed(root: Path, **packages: str) -> None:
    """dpkg's file; underscores of names stand for hyphens, and "removed" for a package whose settings are left."""
    path = root / "var/lib/dpkg/status"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        for name, version in packages.items():
            status = "deinstall ok config-files" if version == "removed" else "install ok installed"
            stream.write(
                f"Package: {name.replace('_', '-')}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\n"
                f"Description: Package: slurmd\n Version: 99\n\n"
            )


def environment(root: Path, name: str, digest: str, *projects: str, stamp: str | None = None) -> None:
    envs = root / "opt/gpuops/envs"
    target = envs / f"{name}-{digest[:12]}"
    site = target / "lib/python3.11/site-packages"
    site.mkdir(parents=True)
    for project in projects:
        (site / f"{project}.dist-info").mkdir()
    (target / ".gpuops.json").write_text(
        json.dumps({"name": name, "lock_sha256": digest}) if stamp is None else stamp, encoding="utf-8"
    )
    link = envs / name
    link.unlink(missing_ok=True)
    link.symlink_to(target.name)


@pytest.mark.parametrize("name", fixtures.names("nvidia-smi-xml"))
def test_every_recording_gives_texts_for_all_items(tmp_path: Path, name: str) -> None:
    gpu = facts_of(fixtures.data("nvidia-smi-xml", name))
    found = versions(tmp_path, gpu)
    assert set(found) == set(_audit_look.ITEMS)
    assert "" not in found.values()
    problems = _audit_look.problems(gpu, NO_FABRIC)
    assert [one["code"] for one in problems] == [one["code"] for one in gpu["problems"]]
    assert all(isinstance(text, str) for one in problems for text in one.values())


def test_a_host_of_eight_gpus(tmp_path: Path) -> None:
    found = versions(tmp_path, facts_of(fixtures.data("nvidia-smi-xml", H100)))
    assert found["gpus"] == "8 x NVIDIA H100 80GB HBM3"
    assert found["gpu_settings"] == "ECC on, MIG off, persistence off, 700 W"


def test_a_gpu_whose_settings_differ_shows(tmp_path: Path) -> None:
    gpu = facts_of(fixtures.data("nvidia-smi-xml", H100))
    gpu["devices"][5]["power_limit_w"] = 500.0
    text = versions(tmp_path, gpu)["gpu_settings"]
    assert text == "7 x ECC on, MIG off, persistence off, 700 W; 1 x ECC on, MIG off, persistence off, 500 W"


def test_gpus_are_unknown_while_the_driver_is_silent(tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    pci_tree.add(sysfs, "0000:1b:00.0", device="2330")
    said = fixtures.data("nvidia-smi-text", "error-no-driver-communication.txt")
    gpu = facts_of(said, sysfs_root=str(sysfs), rc=9)
    found = versions(tmp_path, gpu)
    assert (found["gpu_boards"], found["gpus"], found["driver_loaded"]) == ("1 x 10de:2330", None, "none")
    assert [one["code"] for one in _audit_look.problems(gpu, NO_FABRIC)] == ["driver_not_loaded"]


def test_a_tool_without_gpus_is_no_problem(tmp_path: Path) -> None:
    """A login node that has nvidia-smi: it cannot talk to a driver that nobody needs there."""
    gpu = facts_of(fixtures.data("nvidia-smi-text", "error-no-driver-communication.txt"), rc=9)
    assert _audit_look.problems(gpu, NO_FABRIC) == []
    assert versions(tmp_path, gpu)["gpus"] == "none"


def test_fabric(tmp_path: Path) -> None:
    for number, firmware in enumerate(("28.39.1002", "28.39.1002", "28.36.1010")):
        card = rdma_tree.pci(tmp_path, f"0000:{number + 1}b:00.0")
        hca = rdma_tree.hca(tmp_path, f"mlx5_{number}", card, fw_ver=firmware, board_id="MT_0000000838")
        state = "4: ACTIVE" if number else "1: DOWN"
        rdma_tree.port(
            hca, state=state, phys_state="5: LinkUp", link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)", lid="0x5"
        )
    card = rdma_tree.pci(tmp_path, "0000:5b:00.0")
    rdma_tree.netdev(tmp_path, "ens1", card, speed="100000", mtu="9000", carrier="1")
    fabric = _fabric_facts.gather(str(tmp_path))
    found = versions(tmp_path, fabric=fabric)
    assert found["fabric_firmware"] == "2 x MT_0000000838 28.39.1002; 1 x MT_0000000838 28.36.1010"
    assert found["network"] == "2 x InfiniBand 400 Gbit/s; 1 x Ethernet 100 Gbit/s MTU 9000"
    problems = _audit_look.problems(facts_of(b""), fabric)
    assert [(one["code"], one["device"]) for one in problems] == [("port_down", "mlx5_0")]


@pytest.mark.parametrize(
    ("release", "debian", "name"),
    [
        ('NAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n', "12.7", "Debian 12.7"),
        ('NAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n', "", "Debian 12"),
        ('PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nID=ubuntu\n', "bookworm/sid", "Ubuntu 22.04.5 LTS"),
        ('NAME="Rocky Linux"\nVERSION_ID="9.4"\nID="rocky"\n', "", "Rocky Linux 9.4"),
        ("nothing\n", "", None),
    ],
)  # fmt: skip
def test_the_system(tmp_path: Path, release: str, debian: str, name: str | None) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(release, encoding="utf-8")
    if debian:
        (tmp_path / "etc/debian_version").write_text(f"{debian}\n", encoding="utf-8")
    assert _audit_software.system(str(tmp_path)) == name


def test_packages(tmp_path: Path) -> None:
    installed(
        tmp_path,
        libnvidia_ml1="535.216.03-1~deb12u1",
        nvidia_kernel_dkms="535.216.03-1~deb12u1",
        nvidia_smi="535.216.03-1~deb12u1",
        nvidia_kernel_common="20220217+3~deb12u1",
        nvidia_driver_libs="removed",
        nvidia_fabricmanager_535="535.216.03-1",
        libnccl2="2.21.5-1+cuda12.4",
        slurmd="22.05.8-4+deb12u3",
        slurm_client="22.05.8-4+deb12u3",
        slurm_wlm_doc="1",
    )
    found = versions(tmp_path)
    assert found["driver_installed"] == "535.216.03"
    assert found["fabric_manager"] == "535.216.03"
    assert found["nccl"] == "2.21.5-1+cuda12.4"
    assert found["slurm"] == "22.05.8"


def test_a_driver_of_two_releases_shows_both(tmp_path: Path) -> None:
    installed(
        tmp_path, libnvidia_compute_550="550.54.15-0ubuntu1", nvidia_dkms_535_server="535.183.01-0ubuntu0.22.04.1"
    )
    assert versions(tmp_path)["driver_installed"] == "535.183.01, 550.54.15"


def test_libraries_that_no_package_brought(tmp_path: Path) -> None:
    for folder, name in (
        ("usr/lib/x86_64-linux-gnu", "libnvidia-ml.so.550.54.15"),
        ("usr/lib/x86_64-linux-gnu", "libnccl.so.2.21.5"),
        ("usr/local/cuda-12.4/lib64", "libnccl.so.2.18.3"),
        ("usr/local/lib", "libnccl.so.2.19.3"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).touch()
    (tmp_path / "usr/local/lib/libnccl.so.2").symlink_to("libnccl.so.2.19.3")
    installed(tmp_path, libnccl2="2.21.5-1+cuda12.4")
    found = versions(tmp_path)
    assert found["driver_installed"] == "550.54.15"
    assert found["nccl"] == "2.21.5-1+cuda12.4, 2.19.3 in /usr/local/lib, 2.18.3 in /usr/local/cuda-12.4/lib64"


def test_environments_in_use(tmp_path: Path) -> None:
    environment(tmp_path, "torch", "a" * 64, "torch-2.4.0", "nvidia_nccl_cu12-2.20.5")
    environment(tmp_path, "torch", "b" * 64, "torch-2.5.1+cu124", "nvidia_nccl_cu12-2.21.5", "torchvision-0.20.1")
    environment(tmp_path, "bare", "c" * 64, stamp="[]")
    found = versions(tmp_path)
    assert found["torch"] == "bare: no torch, no lock; torch: 2.5.1+cu124, lock bbbbbbbbbbbb"
    assert found["torch_nccl"] == "torch: 2.21.5"


def test_an_empty_host(tmp_path: Path) -> None:
    found = versions(tmp_path)
    assert found.pop("kernel")
    assert found.pop("os") is None
    assert set(found.values()) == {"none"}
    assert _audit_look.problems(facts_of(b"", sysfs_root=NOWHERE), NO_FABRIC) == []
