"""The health program on a real system: what it finds, what it leaves behind, and what it does without Slurm."""

from __future__ import annotations

import json
from typing import Any

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
