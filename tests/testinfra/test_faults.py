"""What breaks while the site is run: it says what and where, leaves nothing half-written, and the next run converges.

This module has the control node, hosts that go away and disks; test_faults_packages, test_faults_daemons and
test_faults_secrets have the rest.

Faults that other scenarios prove, and that are not repeated here:

- a host's clock is off: test_slurm_day_two, test_a_clock_that_is_off_is_refused
- two hosts with one address: test_preflight, test_everything_that_is_wrong_is_said_at_once
- names that do not resolve before the run: test_preflight, test_names_that_do_not_resolve_are_named
- apt's locks are held; dpkg was killed under a CUDA repository: molecule/cuda_toolkit, converge.yml and prepare.yml
- dpkg was killed under the driver: molecule/nvidia_driver, prepare.yml
- daemons were killed before the run: test_slurm_day_two, test_killed_daemons_lose_no_job
- a full disk under slurmd: test_slurm_day_two, test_a_full_spool_disk_costs_the_node_and_not_the_job
- a mirror's sums are not the ones named: molecule/nvidia_driver, prepare.yml
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testinfra.faults import HOSTS, Start, anew, call, full, inside, job_state, until

pytest_plugins = ["tests.testinfra.faults"]
pytestmark = pytest.mark.usefixtures("nothing_is_lost")

Host = Any


# Two people at once, and a control node that dies.


def test_a_second_run_is_refused_and_other_hosts_are_free(start: Start, hosts: dict[str, Host]) -> None:
    first = start("--limit", "n1,n2", roles=("host_tuning",))
    with first.held_at("host_tuning : Validating arguments"):
        second = start(roles=("host_tuning",))
        assert second.end() != 0
        assert re.search(rf"n1, n2: \S+ on {os.uname().nodename} runs site.yml since", second.said), second.said
        assert f"(process {first.process.pid}); wait until it has ended" in second.said
        assert "host_tuning : Configure" not in second.said and not hosts["ctl"].file("/run/gpuops-run.json").exists
        asked = start("--check", "--limit", "n1", roles=("host_tuning",))
        assert asked.end() != 0 and f"(process {first.process.pid})" in asked.said, asked.said
        apart = start("--limit", "ctl", roles=("host_tuning",))
        assert apart.end() == 0, apart.said
    assert first.end() == 0, first.said
    assert not hosts["n1"].file("/run/gpuops-run.json").exists


def test_a_run_of_another_control_node_counts_until_force(start: Start, hosts: dict[str, Host]) -> None:
    held = start("--limit", "n1", roles=("host_tuning",))
    with held.held_at("host_tuning : Validating arguments"):
        hosts["n1"].check_output("cp /run/gpuops-run.json /run/copy.json")
    assert held.end() == 0
    swap = r"""sed 's/"machine": "[^"]*"/"machine": "elsewhere"/; s/"user": "[^"]*"/"user": "alice"/' /run/copy.json"""
    hosts["n1"].check_output(f"{swap} >/run/gpuops-run.json; rm /run/copy.json")
    refused = start(roles=("host_tuning",))
    assert refused.end() != 0 and "n1: alice on " in refused.said, refused.said
    assert not hosts["n2"].file("/run/gpuops-run.json").exists, "given back"
    forced = start(roles=("host_tuning",), site_lock_force=True)
    assert forced.end() == 0 and not hosts["n1"].file("/run/gpuops-run.json").exists, forced.said


@pytest.mark.parametrize(
    ("task", "given"),
    [
        (
            "slurm : Controller | Write the cluster's",
            {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 21}},
        ),
        ("slurm : Controller | Ask for what the", {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 22}}),
        ("host_tuning : Configure | Write kernel", {"roles": ("host_tuning",), "host_tuning_nofile": 1048570}),
    ],
)
def test_the_control_node_is_killed(
    start: Start,
    heal: Start,
    hosts: dict[str, Host],
    task: str,
    given: dict[str, Any],
) -> None:
    run = start(**given)
    run.reach(task)
    run.kill()
    assert hosts["n1"].file("/run/gpuops-run.json").exists, "nobody gave it back"
    heal(**given)
    assert not hosts["n1"].file("/run/gpuops-run.json").exists
    if "slurm_config_extra" in given:
        wanted = given["slurm_config_extra"]["MessageTimeout"]
        assert f"MessageTimeout          = {wanted} sec" in hosts["ctl"].check_output("scontrol show config")


def test_killed_between_sshd_s_reload_and_the_new_login(start: Start, heal: Start, n2: Host) -> None:
    """Nobody tells the node to keep its new configuration: it goes back by itself, and lets us in meanwhile."""
    ours = "/etc/ssh/sshd_config.d/05-ssh-trust.conf"
    n2.check_output(f"rm -f /etc/ssh/ssh_trust_applied {ours}.rolled-back")
    words = ("--limit", "n2")
    run = start(*words, roles=("ssh_trust",), ssh_trust_rollback_seconds=10)
    run.reach("ssh_trust : Apply | Reload sshd")
    run.kill()
    assert until(lambda: n2.file(f"{ours}.rolled-back").exists)
    n2.check_output("sshd -t")
    assert until(lambda: anew(n2) is not None), "nobody is let in"
    heal(*words, roles=("ssh_trust",))
    assert n2.file(ours).exists
    n2.check_output(f"rm {ours}.rolled-back")


# Hosts that go away.


@contextlib.contextmanager
def cut(host: Host) -> Iterator[None]:
    """The host's answers to this machine go nowhere; other hosts of the lab reach it."""
    gateway = host.check_output("ip route show default").split()[2]
    with inside(host, "net") as words:
        call(*words, "ip", "route", "add", "blackhole", f"{gateway}/32")
        try:
            yield
        finally:
            call(*words, "ip", "route", "del", "blackhole", f"{gateway}/32")


def test_ssh_to_one_node_is_cut(start: Start, heal: Start, hosts: dict[str, Host]) -> None:
    given: dict[str, Any] = {"roles": ("host_tuning",), "host_tuning_nofile": 1048560}
    run = start(**given)
    with contextlib.ExitStack() as stack:
        with run.held_at("host_tuning : Validating arguments"):
            stack.enter_context(cut(hosts["n2"]))
        assert run.end() == 4, run.said
    assert "[n2]: UNREACHABLE!" in run.said and run.recap["n2"][1] == 1, run.said
    for name in ("ctl", "n1"):
        changed, *bad = run.recap[name]
        assert changed > 0 and bad == [0, 0], run.said
        assert not hosts[name].file("/run/gpuops-run.json").exists
    assert until(lambda: anew(hosts["n2"]) is not None)
    first = heal(**given)
    assert [first.recap[name][0] > 0 for name in HOSTS] == [False, False, True], first.said


def test_a_node_reboots(start: Start, heal: Start, hosts: dict[str, Host]) -> None:
    """Its job goes back to the queue and runs again, the one on n1 goes on; its record of the run is gone with /run."""
    ctl, n2 = hosts["ctl"], hosts["n2"]
    submit = "cd /tmp; sbatch --parsable --requeue -w n2 --mem=16 -o /dev/null --wrap 'sleep 14400'"
    job = ctl.check_output(f'su alice -c "{submit}"')
    assert until(lambda: job_state(ctl, job).startswith("RUNNING"))
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 23}}
    run = start(**given)
    booted = "systemctl show -p UserspaceTimestampMonotonic --value"
    with run.held_at("slurm : Main | Choose who speaks"):
        before = n2.check_output(booted)
        assert n2.file("/run/gpuops-run.json").exists
        anew(n2, "systemctl reboot")
        assert until(lambda: anew(n2, booted) not in (None, "", before))
    if run.end():
        assert "n2" in run.failures, run.said
    assert anew(n2, "ls /run/gpuops-run.json") == "", "freed by the reboot"
    assert until(lambda: anew(n2, "systemctl is-system-running") in ("running", "degraded"))
    heal(**given)
    assert until(lambda: job_state(ctl, job).startswith("RUNNING"), 400), job_state(ctl, job)
    ctl.check_output(f"scancel {job}")


# Disks.


def test_the_controller_s_disk_is_full(start: Start, heal: Start, hosts: dict[str, Host]) -> None:
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 24}}
    ctl = hosts["ctl"]
    before = ctl.check_output("cd /etc/slurm && sha256sum *.conf nodes.json")
    run = start(**given)
    with contextlib.ExitStack() as stack:
        with run.held_at("slurm : Main | Choose who speaks"):
            stack.enter_context(full(ctl, "/etc/slurm"))
        assert run.end() != 0, run.said
        assert "No space left on device" in run.said and run.recap["ctl"][2] == 1, run.said
        assert ctl.check_output("cd /etc/slurm && sha256sum *.conf nodes.json") == before
        assert "ctl is UP" in ctl.check_output("scontrol ping")
    heal(**given)


@contextlib.contextmanager
def read_only(host: Host, folder: str) -> Iterator[None]:
    with inside(host, "mount", "pid") as words:
        call(*words, "mount", "--rbind", folder, folder)
        call(*words, "mount", "-o", "remount,bind,ro", folder)
        try:
            yield
        finally:
            call(*words, "umount", "--recursive", folder)


def test_etc_is_read_only(start: Start, heal: Start, hosts: dict[str, Host]) -> None:
    given: dict[str, Any] = {"roles": ("host_tuning",), "host_tuning_nofile": 1048550}
    run = start("--limit", "n2", **given)
    with contextlib.ExitStack() as stack:
        with run.held_at("host_tuning : Validating arguments"):
            stack.enter_context(read_only(hosts["n2"], "/etc"))
        assert run.end() != 0, run.said
    assert run.recap["n2"][2] == 1, run.said
    assert re.search("fatal: \\[n2\\].*/etc/.*(not writable|Read-only file system)", run.failures), run.said
    heal("--limit", "n2", **given)
