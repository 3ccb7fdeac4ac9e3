"""What `molecule test -s nvidia_driver` expects: Debian's user space of the driver, at one version that stays."""

from __future__ import annotations

import contextlib
import time
from typing import Any

Host = Any
QUERY = "index,compute_mode,power.limit,ecc.mode.current,ecc.mode.pending"
MIG = ["3g.40gb", "2g.20gb", "1g.10gb"]


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
    lines = n1.check_output("nvidia-smi -L | grep ^GPU").splitlines()
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


def test_debs_of_ones_own_are_what_is_installed(n2: Host) -> None:
    """The older ones came from a server, then the newer ones from a folder, by the version's variable alone."""
    assert {version for _, _, version in family(n2)} == {"535.309.01-0+deb12u1"}
    policy = n2.check_output("apt-cache policy libcuda1")
    assert "*** 535.309.01-0+deb12u1 1001" in policy
    assert "file:/var/lib/gpuops/nvidia-driver" in policy
    assert "libcuda1" in n2.check_output("apt-mark showhold").split()


def test_one_run_ended_what_a_killed_dpkg_began(n2: Host) -> None:
    """libcuda1 was cut off while it was unpacked, the rest of the family held, one of it waiting for triggers."""
    assert len(family(n2)) >= 7
    assert {state for state, _, _ in family(n2)} == {"hi "}, family(n2)
    assert n2.run("apt-get check").rc == 0
    assert n2.check_output("dpkg --audit") == ""
    assert n2.check_output("find /usr/lib/x86_64-linux-gnu/nvidia -name '*.dpkg-new'") == ""


def settings(n1: Host) -> list[list[str]]:
    lines = n1.check_output(f"nvidia-smi --query-gpu={QUERY} --format=csv,noheader,nounits").splitlines()
    return [[part.strip() for part in line.split(",")] for line in lines]


def mig_devices(n1: Host) -> list[str]:
    return [line.split()[1] for line in n1.check_output("nvidia-smi -L").splitlines() if line.startswith("  MIG")]


def test_settings_show_in_nvidia_smi(n1: Host) -> None:
    for index, mode, limit, _ecc, pending in settings(n1):
        assert (mode, limit, pending) == ("Exclusive_Process", "650.00", "Disabled"), index
    assert sorted(mig_devices(n1)) == sorted(MIG)


def test_a_reboot_gives_back_what_the_driver_forgets_and_applies_ecc(n1: Host) -> None:
    """The node really restarts; then the unit, and nothing else, has set all of it again."""
    started = "systemctl show --property=UserspaceTimestampMonotonic"
    before = n1.check_output(started)
    deadline = time.monotonic() + 300
    after = before
    with contextlib.suppress(RuntimeError):  # the connection ends with the node
        n1.run("systemctl reboot")
    while after in ("", before) and time.monotonic() < deadline:
        time.sleep(1)
        with contextlib.suppress(RuntimeError):
            after = n1.run(started).stdout.strip()
    assert after not in ("", before), "the node did not come back"
    n1.check_output("systemctl is-system-running --wait || true")
    assert n1.check_output("systemctl is-active gpuops-gpu-settings") == "active"
    for index, mode, limit, ecc, pending in settings(n1):
        assert (mode, limit, ecc, pending) == ("Exclusive_Process", "650.00", "Disabled", "Disabled"), index
    assert sorted(mig_devices(n1)) == sorted(MIG)
    assert "slurmd.service" in n1.check_output("systemctl show --property=Before gpuops-gpu-settings")
