"""Daemons that die and names that do not resolve any more, in the middle of a run of the site."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testinfra.faults import Start, until

pytest_plugins = ["tests.testinfra.faults"]
pytestmark = pytest.mark.usefixtures("nothing_is_lost")

Host = Any
MAIN = "systemctl show --property MainPID --value slurmd"
MEMORY = Path("/sys/fs/cgroup/memory")


@contextlib.contextmanager
def without_dns(host: Host) -> Iterator[None]:
    """No name server answers. The file is the container runtime's: it is written, not replaced."""
    host.check_output("cp /etc/resolv.conf /run/resolv.conf; echo nameserver 127.0.0.9 > /etc/resolv.conf")
    try:
        yield
    finally:
        host.check_output("cat /run/resolv.conf > /etc/resolv.conf; rm /run/resolv.conf")


def test_names_do_not_resolve_any_more(start: Start, heal: Start, hosts: dict[str, Host]) -> None:
    """slurmd starts anew and knows its controller by name alone: no job runs on that node, and the run says so."""
    ctl, n1, n2 = hosts["ctl"], hosts["n1"], hosts["n2"]
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_config_extra": {"MpiParams": "ports=13000-13999"}}
    given["slurm_verify_timeout"] = 30
    before = {name: host.check_output(MAIN) for name, host in hosts.items()}
    run = start(**given)
    with contextlib.ExitStack() as stack:
        with run.held_at("slurm : Main | Choose who speaks"):
            stack.enter_context(without_dns(n2))
        assert run.end() != 0, run.said
        assert n2.check_output(MAIN) != before["n2"] and n1.check_output(MAIN) not in (before["n1"], "0")
    assert re.search(r"^fatal: .*\bn2[: ]", run.failures, re.MULTILINE) and "n1: srun" not in run.failures, run.said
    heal(**given)
    assert "n2" in ctl.check_output("srun -Q -w n2 --mem=16 hostname")


@pytest.mark.parametrize(
    ("daemons", "task", "said"),
    [
        (("mariadb", "slurmdbd"), "slurm : Main | Choose who speaks", "mariadb.service: .*status=9/KILL"),
        (("slurmdbd",), "slurm : Controller | Ask for what the", "ctl:6819: Connection refused"),
        (("slurmctld",), "slurm : Controller | Ask for what the", "at ctl is DOWN"),
    ],
    ids=["mariadb", "slurmdbd", "slurmctld"],
)
def test_a_daemon_of_the_controller_dies_and_stays_down(
    start: Start, heal: Start, ctl: Host, job: str, daemons: tuple[str, ...], task: str, said: str
) -> None:
    fairshare = int(ctl.check_output("sacctmgr -nP show assoc account=vision user=alice format=fairshare")) % 50 + 1
    accounts = [{"name": "vision", "users": ["alice"], "fairshare": fairshare}]
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_verify_timeout": 30, "slurm_accounts": accounts}
    names = " ".join(daemons)
    run = start(**given)
    with run.held_at(task):
        ctl.check_output(f"systemctl kill -s KILL {names}; systemctl stop {names}")
    assert run.end() != 0, run.said
    assert run.recap["ctl"][2] == 1 and re.search(rf"fatal: \[ctl\].*{said}", run.failures), run.said
    assert "has no attribute" not in run.said, "hosts that wait for the controller say so"
    heal(**given)
    assert all(ctl.service(daemon).is_running for daemon in daemons)
    assert f"{job}|RUNNING" in ctl.check_output(f"sacct -nXP -j {job} -o jobid,state")


def pid_here(host: Host, pid: str) -> int:
    """A host's process as this machine numbers it."""
    wanted = host.check_output("readlink /proc/1/ns/pid")
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "ns/pid") == wanted and f"\t{pid}\nNSpgid" in (path / "status").read_text():
                return int(path.name)
    raise LookupError(pid)


@contextlib.contextmanager
def no_memory_for(host: Host, pid: str) -> Iterator[None]:
    """The kernel gives a process no page more, and kills it when it asks for one."""
    (group := MEMORY / "gpuops-none").mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text("4096")
        (group / "cgroup.procs").write_text(str(pid_here(host, pid)))
        yield
        assert "oom_kill 0" not in (group / "memory.oom_control").read_text()
    finally:
        group.rmdir()


def test_slurmd_runs_out_of_memory(start: Start, heal: Start, n1: Host) -> None:
    """The one whose node has alice's job. systemd starts it again after five seconds; until then the run waits."""
    if not MEMORY.exists():
        pytest.skip("this machine has no memory controller of cgroup v1, through which the limit is set")
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 26}}
    before = n1.check_output(MAIN)
    run = start(**given)
    with run.held_at("slurm : Main | Choose who speaks"), no_memory_for(n1, before):
        # Each question takes a thread, and that a stack.
        assert until(lambda: n1.run("timeout 5 scontrol show slurmd").rc and n1.check_output(MAIN) != before, 60)
    assert run.end() == 0, run.said
    assert n1.check_output(MAIN) not in (before, "0")
    heal(**given)
