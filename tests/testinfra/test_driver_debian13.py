"""What `molecule test -s driver_debian13` expects: one family of the driver and one release of CUDA, on Debian 13."""

from __future__ import annotations

from typing import Any

Host = Any


def family(node: Host) -> list[list[str]]:
    """State, package and version of everything installed that is built from the driver's source package."""
    query = (
        "dpkg-query --show --showformat '${db:Status-Abbrev}|${Package}|${Version}|${source:Package}\\n' "
        "| grep '|nvidia-graphics-drivers$'"
    )
    return [line.split("|")[:3] for line in node.check_output(query).splitlines()]


def test_it_is_debian_13(n1: Host) -> None:
    assert n1.system_info.codename == "trixie"


def test_the_driver_is_one_version_held_and_pinned(n1: Host) -> None:
    packages = family(n1)
    assert {"libcuda1", "libnvidia-ml1", "nvidia-smi"} <= {name for _, name, _ in packages}
    assert all(state.startswith("hi") for state, _, _ in packages), packages
    (version,) = {version for _, _, version in packages}
    assert version.startswith("550.")
    assert f"*** {version} 1001" in n1.check_output("apt-cache policy libcuda1")
    assert set(n1.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").splitlines()) == {
        version.rpartition("-")[0]
    }


def test_the_components_are_in_the_entry_of_the_distribution(n1: Host) -> None:
    """Debian 13 is installed with deb822 files, or with a list: whichever is there was extended."""
    targets = n1.check_output("apt-get indextargets --format '$(CODENAME) $(COMPONENT)' 'Created-By: Packages'")
    assert "trixie non-free" in targets.splitlines()
    update = n1.run("apt-get update")
    assert update.rc == 0
    assert "configured multiple times" not in update.stderr


def test_settings_show_in_nvidia_smi(n1: Host) -> None:
    modes = n1.check_output("nvidia-smi --query-gpu=compute_mode --format=csv,noheader").splitlines()
    assert modes == ["Exclusive_Process"] * 4


def test_cuda_compiles_for_the_gpus_of_the_node(n1: Host) -> None:
    assert "release 13.0," in n1.check_output("bash -lc 'nvcc --version'")
    program = "__global__ void one() {} int main() { one<<<1, 1>>>(); return 0; }"
    n1.check_output("echo %s > /tmp/one.cu && bash -lc 'nvcc -arch=sm_90 -o /tmp/one /tmp/one.cu'", program)
    assert n1.file("/tmp/one").exists


def test_cuda_is_held_and_its_repository_is_gone(n1: Host) -> None:
    assert n1.file("/etc/apt/preferences.d/cuda-repository-pin-600").exists
    assert "cuda-toolkit-13-0" in n1.check_output("apt-mark showhold").split()
    assert not n1.check_output("ls -d /var/cuda-repo-* /etc/apt/sources.list.d/cuda* 2>/dev/null || true")
    assert "cuda" not in n1.check_output("apt-get --simulate dist-upgrade | grep ^Inst || true")
    assert n1.check_output("dpkg --audit") == ""
