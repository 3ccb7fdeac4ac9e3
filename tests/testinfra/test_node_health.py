"""The health program on a real system: what it finds, what it leaves behind, and what it does without Slurm."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
PROGRAM = "/usr/local/lib/gpuops/node_health"


def test_gpus_without_a_driver_are_found_by_hand_and_nothing_is_drained(n1: Any) -> None:
    done = n1.run(PROGRAM)
    assert done.rc == 1
    assert done.stdout.startswith("drain: no_driver: ")
    kept = json.loads(n1.file("/run/gpuops/node_health.json").content_string)
    assert kept["healthy"] is False
    assert kept["findings"][0]["code"] == "no_driver"


def test_a_slurm_that_cannot_be_told_changes_nothing_about_the_verdict(n1: Any) -> None:
    done = n1.run(f"{PROGRAM}_slurm")
    assert done.rc == 1
    assert "could not be told" in done.stderr


def test_a_second_run_does_not_pile_up_on_the_first(n1: Any) -> None:
    done = n1.run(f"flock /run/gpuops/node_health.lock {PROGRAM}")
    assert done.rc == 2
    assert "another run is on" in done.stderr


def test_wrong_settings_are_said(n1: Any) -> None:
    n1.check_output("printf '{' > /tmp/broken.json")
    done = n1.run(f"{PROGRAM} --settings /tmp/broken.json")
    assert done.rc == 2
    assert "/tmp/broken.json" in done.stderr


def test_the_user_s_severity_counts(n1: Any) -> None:
    n1.check_output('printf \'%s\' \'{"severities": {"no_driver": "warn"}}\' > /tmp/warn.json')
    done = n1.run(f"{PROGRAM} --settings /tmp/warn.json")
    assert done.rc == 0
    assert "warn: no_driver" in done.stdout


def test_no_check_fails_by_itself(n1: Any) -> None:
    assert "check_failed" not in n1.run(PROGRAM).stdout


def test_the_prolog_keeps_jobs_away_and_the_epilog_stays_out_of_the_way(n1: Any) -> None:
    assert n1.run(f"{PROGRAM}_prolog").rc == 1
    assert n1.run(f"{PROGRAM}_epilog").rc == 0


def test_what_hangs_before_a_prolog_does_not_let_jobs_through(n1: Any) -> None:
    """Another prolog holds the lock; a limit of -15 waits for it not at all."""
    n1.check_output("printf '%s' '{\"prolog_timeout_s\": -15}' > /tmp/impatient.json")
    busy = f"flock /run/gpuops/node_health_job.lock {PROGRAM} --prolog --settings /tmp/impatient.json"
    assert n1.run(f"{PROGRAM}_prolog").rc == 1
    assert n1.run(busy).rc == 1, "the node is known to be sick"
    n1.check_output("rm /run/gpuops/node_health_job.json")
    assert n1.run(busy).rc == 0, "nothing is known: no reason to keep a job away"


def converge(*options: str, status: int = 0) -> str:
    done = subprocess.run(
        ["ansible-playbook", "-i", "inventories/lab", "molecule/node_health/converge.yml", "--limit", "n1", *options],
        cwd=PROJECT,
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_what_others_changed_is_mended_in_the_same_run(n1: Any) -> None:
    """Check mode says so first. Without anything to do the run is short."""
    before = n1.check_output("sha256sum %s %s_prolog /etc/gpuops/node_health.json", PROGRAM, PROGRAM)
    assert "ok=5 changed=0 unreachable=0 failed=0 skipped=1 " in converge()
    n1.check_output("echo >> %s; chmod 0600 %s_prolog; rm /etc/gpuops/node_health.json", PROGRAM, PROGRAM)
    assert "changed=2 " in converge("--check")
    assert not n1.file("/etc/gpuops/node_health.json").exists
    assert "changed=2 " in converge()
    assert n1.check_output("sha256sum %s %s_prolog /etc/gpuops/node_health.json", PROGRAM, PROGRAM) == before
    assert n1.file(f"{PROGRAM}_prolog").mode == 0o755
    assert "ok=5 changed=0 " in converge()


def test_what_is_set_wrong_is_said_at_once() -> None:
    wrong = json.dumps({"node_health_severities": {"xid": "shout"}, "node_health_timeout": 0})
    said = converge("-e", wrong, status=2)
    assert "n1: node_health_severities has xid = shout; each value must be drain, drain_after_job" in said
    assert "; node_health_timeout is 0, node_health_check_timeout 20," in said
