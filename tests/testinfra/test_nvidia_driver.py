"""What `molecule test -s nvidia_driver` expects: Debian's user space of the driver, at one version that stays."""

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


def test_the_whole_family_has_one_version(n1: Host) -> None:
    packages = family(n1)
    assert {"libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-alternative"} <= {name for _, name, _ in packages}
    assert len({version for _, _, version in packages}) == 1, packages


def test_the_whole_family_is_held(n1: Host) -> None:
    assert all(state.startswith("hi") for state, _, _ in family(n1)), family(n1)


def test_no_upgrade_moves_it(n1: Host) -> None:
    assert "nvidia" not in n1.check_output("apt-get --simulate dist-upgrade | grep ^Inst || true")
    unheld = n1.check_output("apt-get --simulate --ignore-hold dist-upgrade | grep ^Inst || true")
    assert "nvidia" not in unheld, "the pin alone has to keep it, too"


def test_its_version_is_pinned_above_all(n1: Host) -> None:
    (version,) = {version for _, _, version in family(n1)}
    policy = n1.check_output("apt-cache policy libcuda1")
    assert f"Candidate: {version}" in policy
    assert f"*** {version} 1001" in policy


def test_unattended_upgrades_leaves_it(n1: Host) -> None:
    blacklist = n1.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert "^(lib)?nvidia-" in blacklist
    assert "cuda1" in blacklist


def test_nvidia_smi_lists_the_gpus_of_the_profile(n1: Host) -> None:
    lines = n1.check_output("nvidia-smi -L").splitlines()
    assert len(lines) == 8
    assert all("H100" in line for line in lines), lines


def test_nvidia_smi_and_packages_say_the_same_number(n1: Host) -> None:
    (version,) = {version for _, _, version in family(n1)}
    answers = set(n1.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").splitlines())
    assert answers == {version.rpartition("-")[0]}


def test_the_components_were_added_once(n1: Host) -> None:
    targets = n1.check_output(
        "apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages'"
    )
    lines = targets.splitlines()
    assert any(line.endswith(" non-free") for line in lines)
    assert len(lines) == len(set(lines))
    assert "configured multiple times" not in n1.run("apt-get update").stderr


def test_nvidias_packages_are_pinned_and_held_too(ctl: Host) -> None:
    policy = ctl.check_output("apt-cache policy nvidia-driver-cuda")
    assert "*** 580.95.05-1 1001" in policy
    assert set(ctl.check_output("apt-mark showhold").split()) >= {"libcuda1", "libnvidia-ml1", "nvidia-driver-cuda"}


def test_the_key_of_nvidias_repository_is_the_one_in_it(ctl: Host) -> None:
    installed = ctl.check_output("sha256sum < /usr/share/keyrings/nvidia-driver-local-*-keyring.gpg")
    assert installed == ctl.check_output("sha256sum < /var/nvidia-driver-local-repo-*/*-keyring.gpg")
    assert ctl.run("apt-get update").rc == 0
