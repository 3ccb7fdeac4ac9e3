"""Tuning after a real reboot, as the kernel, a service, a login and the time daemon have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
ASK = "ulimit -l; ulimit -Sn; ulimit -Hn"
LIMITS = ["unlimited", "65536", "1048576"]


def play(**variables: Any) -> tuple[int, str]:
    """Applies converge.yml with these variables; exit status and output on one line."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    book = "molecule/host_tuning_vm/converge.yml"
    command = [program, "-i", "inventories/lab", book, "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def boot_id(n1: Any) -> str:
    return str(n1.check_output("cat /proc/sys/kernel/random/boot_id"))


def test_the_machine_was_booted_anew_with_the_parameter(n1: Any) -> None:
    assert boot_id(n1) != n1.check_output("cat /root/boot_id")
    assert "iommu=pt" in n1.check_output("cat /proc/cmdline").split()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.numa_balancing", "0"),
        ("vm.swappiness", "10"),
        ("vm.max_map_count", "1048576"),
        ("vm.overcommit_memory", "1"),
        ("vm.nr_hugepages", "32"),
    ],
)
def test_the_kernel_has_the_value_after_the_boot(n1: Any, key: str, value: str) -> None:
    assert n1.check_output("sysctl -n %s", key) == value


def test_the_huge_pages_are_there(n1: Any) -> None:
    found = n1.check_output("grep -E 'HugePages_(Total|Free)' /proc/meminfo").split()
    assert found[1] == found[3] == "32"


def test_transparent_huge_pages_are_for_those_who_ask(n1: Any) -> None:
    assert "[madvise]" in n1.file("/sys/kernel/mm/transparent_hugepage/enabled").content_string


def test_a_service_and_a_login_have_the_limits(n1: Any) -> None:
    asked = n1.check_output("systemd-run --wait --pipe --collect --quiet /bin/sh -c %s", ASK)
    assert asked.split() == LIMITS
    assert n1.check_output(ASK).split() == LIMITS, "ssh is a login"


def test_a_slurm_job_has_the_limits_whatever_its_shell_had(n1: Any) -> None:
    n1.check_output("timeout 300 sh -c 'until sinfo -h -o %T | grep -qx idle; do sleep 1; done'")
    memlock, files = n1.check_output("cd / && ulimit -l 64 && srun sh -c 'ulimit -l; ulimit -Hn'").split()
    assert memlock == "unlimited"
    assert int(files) >= int(LIMITS[1]), "slurmd's own unit has a limit of its own"


def test_chrony_keeps_the_clock_with_the_server_that_was_named(n1: Any) -> None:
    assert n1.service("chrony").is_running
    assert n1.service("chrony").is_enabled
    assert "192.0.2.1" in n1.check_output("chronyc -n sources")
    assert n1.service("irqbalance").is_running


def test_without_consent_nothing_reboots_and_the_reason_is_said(n1: Any) -> None:
    before = boot_id(n1)
    status, out = play(lab_reboot=False, lab_parameters=["gpuops_lab=1"])
    assert status == 0, out
    assert "reboot required: host_tuning: kernel parameter gpuops_lab=1" in out
    assert boot_id(n1) == before
    assert "gpuops_lab=1" in n1.file("/boot/grub/grub.cfg").content_string, "the next boot has it"
    assert "kernel.no_such_parameter: this kernel has none" in out
