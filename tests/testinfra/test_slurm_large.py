"""32 nodes: all registered, one job on all of them, and one record of it."""

from __future__ import annotations

import time
from typing import Any

Host = Any
NODES = 32


def test_every_node_is_registered_and_idle(ctl: Host) -> None:
    states = [line.split() for line in ctl.check_output("sinfo -h -N -o '%N %T'").splitlines()]
    assert len(states) == NODES and {state for _node, state in states} == {"idle"}, states


def test_a_job_across_all_runs_once_on_each(ctl: Host) -> None:
    began = time.monotonic()
    out = ctl.check_output(
        f"srun -Q --mpi=pmix -N{NODES} --ntasks-per-node=1 --mem=16 sh -c 'hostname; echo $PMIX_RANK'"
    )
    print(f"a job on {NODES} nodes: {time.monotonic() - began:.1f} s")
    assert sorted(out.split()) == sorted([f"n{number + 1}" for number in range(NODES)] + [str(n) for n in range(NODES)])


def test_the_trial_job_spanned_all_and_is_in_the_accounting(ctl: Host) -> None:
    records = ctl.check_output("sacct -nPX --name=gpuops-verify -S now-1days -o State,NNodes").splitlines()
    assert f"COMPLETED|{NODES}" in records


def test_hundred_small_jobs_end_and_are_counted(ctl: Host) -> None:
    array = ctl.check_output("cd /tmp; sbatch --parsable --array=1-100 -n1 --mem=16 -o /dev/null --wrap true")
    deadline = time.monotonic() + 600
    while ctl.check_output("squeue -h") and time.monotonic() < deadline:
        time.sleep(1)
    asked = f"sacct -nPX -j {array} -o State"
    while time.monotonic() < deadline and ctl.check_output(asked).split().count("COMPLETED") < 100:
        time.sleep(1)
    assert ctl.check_output(asked).split() == ["COMPLETED"] * 100
