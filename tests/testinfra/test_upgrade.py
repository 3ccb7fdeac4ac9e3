"""What `molecule test -s upgrade` expects: nodes changed one by one and back at work; one that fails stays out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

Host = Any
PROJECT = Path(__file__).parents[2]
OLD, NEW = "535.261.03", "535.309.01"
WANTED = {"nvidia_driver_version": OLD, "nvidia_driver_downgrade_allowed": True, "upgrade_roles": ["nvidia_driver"]}


def upgrade(**variables: Any) -> tuple[int, str]:
    """The playbook, back to the older driver: exit code and output."""
    done = subprocess.run(
        [
            *("ansible-playbook", str(PROJECT / "playbooks/upgrade.yml"), "-i", str(PROJECT / "inventories/lab")),
            *("-e", json.dumps({**WANTED, **variables})),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
    )
    return done.returncode, done.stdout + done.stderr


def fault(node: str, *settings: str) -> None:
    command = [str(PROJECT / "run"), "lab", "fault", "--name", os.environ["GPUOPS_LAB_NAME"], node, *settings]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def driver(node: Host) -> str:
    lines = node.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").splitlines()
    (version,) = set(lines)
    return str(version)


def state(ctl: Host, node: str) -> tuple[str, str]:
    """State and reason as Slurm shows them."""
    text = ctl.check_output("scontrol --oneliner show node | grep '^NodeName=%s '", node)
    reason = text.partition(" Reason=")[2].partition(" [")[0]
    return text.partition(" State=")[2].split()[0], reason


@pytest.fixture(scope="module")
def sick_n1(ctl: Host) -> tuple[int, str, str]:
    """A run in which n1 has a job before, and is sick after: exit code, output, and the job's number."""
    job = ctl.check_output("cd /tmp && sbatch --parsable --nodelist=n1 --wrap 'sleep 45'").strip()
    fault("n1", "row_remap_failed=1")
    return (*upgrade(upgrade_reboot_allowed=True), job)


def test_all_nodes_have_the_newer_driver_and_work(ctl: Host, n1: Host, n2: Host) -> None:
    assert (driver(n1), driver(n2)) == (NEW, NEW)
    assert [state(ctl, name) for name in ("n1", "n2")] == [("IDLE", "")] * 2
    assert sorted(ctl.check_output("srun --immediate=30 --nodes=2 --gres=gpu:4 hostname").split()) == ["n1", "n2"]


def test_without_consent_to_reboot_nothing_is_changed(ctl: Host, n1: Host, n2: Host) -> None:
    code, output = upgrade()
    assert code != 0
    assert "2 problem(s), nothing was changed" in output
    assert f"n2: the driver {NEW} is loaded, and another one ({OLD}) takes a reboot; set upgrade_reboot_al" in output
    assert [state(ctl, name) for name in ("n1", "n2")] == [("IDLE", "")] * 2
    for node in (n1, n2):
        assert f"Installed: {NEW}-" in node.check_output("apt-cache policy libcuda1")


def test_a_batch_that_the_gate_could_not_measure_is_refused_before_it_is_changed(n1: Host, n2: Host) -> None:
    n1.check_output("printf 'Host n2\\n  ProxyCommand false\\n' > /root/.ssh/config")
    code, output = upgrade(upgrade_reboot_allowed=True, upgrade_serial=2)
    n1.check_output("rm /root/.ssh/config")
    assert code != 0
    assert "1 problem(s), nothing was changed" in output
    assert "n1: no way by ssh to n2, which the gate of a batch takes (" in output
    assert (driver(n1), driver(n2)) == (NEW, NEW)


def test_a_node_that_is_sick_afterwards_stays_drained_with_the_reason(sick_n1: tuple[int, str, str], ctl: Host) -> None:
    code, output, job = sick_n1
    assert code != 0
    assert "1 node(s) failed and stay out of service" in output
    shown, reason = state(ctl, "n1")
    assert "DRAIN" in shown
    assert reason.startswith("gpuops upgrade: health: GPUs are degraded"), reason
    assert "JobState=COMPLETED" in ctl.check_output("scontrol show job %s", job), "the drain has to wait for it"


def test_the_others_are_left_alone(sick_n1: tuple[int, str, str], ctl: Host, n2: Host) -> None:
    assert driver(n2) == NEW
    assert state(ctl, "n2") == ("IDLE", "")
    assert "not changed: other nodes failed (upgrade_max_fail) [n2]" in sick_n1[1]


def test_the_next_run_tries_again_all_at_once_and_keeps_the_drain_of_others(
    sick_n1: tuple[int, str, str], ctl: Host, n1: Host, n2: Host
) -> None:
    fault("n1", "--clear")
    ctl.check_output("scontrol update nodename=n2 state=drain reason='a fan is broken'")
    code, output = upgrade(upgrade_reboot_allowed=True, upgrade_serial=2)
    assert code == 0, output
    assert (driver(n1), driver(n2)) == (OLD, OLD)
    assert state(ctl, "n1") == ("IDLE", "")
    assert state(ctl, "n2")[1] == "a fan is broken"
    assert "DRAIN" in state(ctl, "n2")[0]
    assert "reboot required" not in output, "what was rebooted waits no more"
    assert "before the reboot" not in output


def test_without_slurm_the_nodes_are_changed_and_as_many_may_fail_as_were_named(ctl: Host, n1: Host, n2: Host) -> None:
    """Slurm is not asked, so its state stays as it is; n1 fails again, and n2 is reached all the same."""
    before = [state(ctl, name) for name in ("n1", "n2")]
    fault("n1", "row_remap_failed=1")
    code, output = upgrade(
        nvidia_driver_version=NEW,
        upgrade_reboot_allowed=True,
        upgrade_slurm_controller="",
        upgrade_max_fail=1,
        upgrade_gate=False,
    )
    fault("n1", "--clear")
    assert code != 0
    assert "n1: health: GPUs are degraded" in output
    assert driver(n2) == NEW
    assert [state(ctl, name)[1] for name in ("n1", "n2")] == [reason for _, reason in before]
