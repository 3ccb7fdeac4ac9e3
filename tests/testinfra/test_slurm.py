"""Slurm on the lab: real daemons are asked, killed, drained and kept busy; the role is run again over what is left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Host = Any
PROJECT = Path(__file__).parents[2]


def play(
    *arguments: str, book: str = "molecule/slurm/converge.yml", **variables: Any
) -> subprocess.CompletedProcess[str]:
    """The scenario's playbook once more, as a user re-runs it; or another one with the scenario's variables."""
    command = ["ansible-playbook", "-i", "inventories/lab", book, *arguments]
    if book.startswith("playbooks/"):
        scenario = yaml.safe_load((PROJECT / "molecule/slurm/converge.yml").read_text(encoding="utf-8"))
        variables = {**scenario[0]["vars"], **variables}
    if variables:
        command += ["--extra-vars", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def until(question: Callable[[], bool], seconds: float = 180.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.5)
    return False


def state(ctl: Host, node: str) -> str:
    # Without -n: about a single node slurmctld answers from before the last job ended.
    lines = ctl.check_output("sinfo -h -N -p main -o '%N %T'").splitlines()
    return str(dict(line.split() for line in lines)[node])


def assert_idle(ctl: Host, seconds: float = 300.0) -> None:
    """Both nodes are idle, or will be once slurmctld has asked them again: it does so every 100 seconds."""
    seen: list[list[str]] = []

    def question() -> bool:
        seen.append([state(ctl, node) for node in ("n1", "n2")])
        return seen[-1] == ["idle", "idle"]

    assert until(question, seconds), f"{seen[-1]} at last: {ctl.check_output('sinfo -N -o %N,%T,%P,%E; squeue')}"


@pytest.fixture(autouse=True)
def _quiet_cluster(ctl: Host) -> Iterator[None]:
    """No test leaves jobs behind for the next one."""
    yield
    ctl.run("scancel --state=PENDING --partition=main; scancel --state=RUNNING --partition=main")
    assert until(lambda: not ctl.check_output("squeue -h")), ctl.check_output("squeue")


def test_daemons_answer_and_nodes_are_idle(ctl: Host) -> None:
    assert " is UP" in ctl.check_output("scontrol ping")
    assert_idle(ctl)


def test_gpus_are_typed_and_counted(ctl: Host) -> None:
    for node in ("n1", "n2"):
        assert "Gres=gpu:h100:8" in ctl.check_output(f"scontrol show node {node}")


def test_the_trial_job_is_in_the_accounting(ctl: Host) -> None:
    records = ctl.check_output("sacct -nPX --name=gpuops-verify -S now-1days -o State,AllocTRES,NNodes").splitlines()
    assert any(line.startswith("COMPLETED|") and "gres/gpu=16" in line and line.endswith("|2") for line in records)


def test_two_jobs_on_one_node_get_different_gpus(ctl: Host) -> None:
    out = ctl.check_output(
        "for i in 1 2; do srun -Q -w n1 -p main --gres=gpu:h100:4 --mem=16 -n1"
        " sh -c 'echo $CUDA_VISIBLE_DEVICES; sleep 2' & done; wait"
    )
    first, second = (set(line.split(",")) for line in out.split())
    assert len(first) == len(second) == 4 and not first & second


def test_more_gpus_than_a_node_has_are_refused_at_once(ctl: Host) -> None:
    answer = ctl.run("srun -Q -N1 --gres=gpu:h100:9 --mem=16 true")
    assert answer.rc != 0 and "not available" in answer.stderr


def test_mpi_starts_through_pmix(ctl: Host) -> None:
    out = ctl.check_output("srun -Q --mpi=pmix -N2 --ntasks-per-node=1 --mem=16 sh -c 'echo $PMIX_RANK'")
    assert sorted(out.split()) == ["0", "1"]
    assert ctl.check_output("scontrol show config | grep PMIxCollFence").split()[-1] == "ring"


def test_jobs_without_a_memory_wish_share_a_node(ctl: Host) -> None:
    out = ctl.check_output("for i in 1 2; do srun -Q -w n1 -p main -n1 -c1 sh -c 'sleep 2; hostname' & done; wait")
    assert out.split() == ["n1", "n1"]
    records = ctl.check_output("sacct -nPX --name=sh -S now-5minutes -o Start,End").split()
    assert records


def test_accounts_limits_and_strangers(ctl: Host) -> None:
    job = "-Q -N1 --mem=16 --immediate=10"
    assert ctl.run(f"su alice -c 'srun {job} --gres=gpu:8 true'").rc == 0
    assert ctl.run(f"su alice -c 'srun {job} --qos=urgent true'").rc == 0
    refused = ctl.run(f"su bob -c 'srun {job} --gres=gpu:5 true'")
    assert refused.rc != 0, "speech may have 4 GPUs"
    assert "Invalid" in ctl.run(f"su mallory -c 'srun {job} true'").stderr
    shares = ctl.check_output("sshare -nP -A vision -o Account,RawShares")
    assert "vision|3" in shares.replace(" ", "")


def test_the_munge_key_is_one_random_secret(connect: Callable[[str], Host]) -> None:
    sums = set()
    for name in ("ctl", "n1", "n2"):
        key = connect(name).file("/etc/munge/munge.key")
        assert (key.user, key.mode, key.size) == ("munge", 0o400, 1024)
        sums.add(key.sha256sum)
    assert len(sums) == 1


def test_nodes_hold_no_configuration_of_their_own(n1: Host, ctl: Host) -> None:
    assert not n1.file("/etc/slurm/slurm.conf").exists
    assert n1.check_output("scontrol show config | grep -c ClusterName") == "1"
    dbd = ctl.file("/etc/slurm/slurmdbd.conf")
    assert (dbd.user, dbd.mode) == ("slurm", 0o600)
    assert "pass" not in ctl.file("/etc/slurm/slurm.conf").content_string.lower()
    assert "pass" not in dbd.content_string.lower()


def test_accounting_survives_its_database(ctl: Host) -> None:
    ctl.check_output("systemctl kill -s KILL mariadb slurmdbd; systemctl stop mariadb slurmdbd")
    job = ctl.check_output("sbatch --parsable -p main -w n1 --mem=16 --wrap true")
    assert until(lambda: not ctl.check_output(f"squeue -h -j {job} -t PD,R,CG"))
    run = play("--limit", "ctl")
    assert run.returncode == 0, run.stdout + run.stderr
    assert until(lambda: "COMPLETED" in ctl.check_output(f"sacct -nPX -j {job} -o State")), "the record is lost"


def test_a_dead_controller_comes_back_with_its_jobs(ctl: Host) -> None:
    job = ctl.check_output("sbatch --parsable -p main -w n1 --mem=16 --wrap 'sleep 300'")
    assert until(lambda: ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING")
    # What slurmctld has not yet written is lost with it, whoever starts it again.
    started = int(ctl.check_output("date +%s"))
    assert until(lambda: int(ctl.check_output("stat -c %Y /var/lib/slurm/slurmctld/job_state")) > started)
    ctl.check_output("systemctl kill -s KILL slurmctld; systemctl stop slurmctld")
    run = play()
    assert run.returncode == 0, run.stdout + run.stderr
    assert ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    assert "n1 is mixed" in run.stdout, "a busy node is reported, not waited for"


def test_a_dead_slurmd_is_repaired(ctl: Host, n1: Host) -> None:
    n1.check_output("systemctl stop slurmd")
    ctl.check_output("scontrol update nodename=n1 state=down reason=test")
    run = play("--limit", "n1,ctl")
    assert run.returncode == 0, run.stdout + run.stderr
    assert n1.service("slurmd").is_running
    assert_idle(ctl)


def test_a_drained_node_stays_drained_and_is_reported(ctl: Host) -> None:
    ctl.check_output("scontrol update nodename=n2 state=drain reason='new cable, ask Eve'")
    before = ctl.file("/etc/slurm/slurm.conf").sha256sum
    run = play("--limit", "n2")
    assert run.returncode == 0 and "new cable, ask Eve" in run.stdout, run.stdout + run.stderr
    assert "drain" in state(ctl, "n2")
    assert ctl.file("/etc/slurm/slurm.conf").sha256sum == before, "a run over one node leaves the others' lines alone"
    ctl.check_output("scontrol update nodename=n2 state=resume")
    assert_idle(ctl)


def test_a_wrong_option_never_replaces_a_right_one(ctl: Host) -> None:
    before = ctl.file("/etc/slurm/slurm.conf").sha256sum
    run = play("--limit", "ctl", slurm_config_extra={"NoSuchOption": "1"})
    assert run.returncode != 0 and "NoSuchOption" in run.stdout + run.stderr
    assert ctl.file("/etc/slurm/slurm.conf").sha256sum == before
    assert_idle(ctl)


def test_a_new_partition_is_only_a_reload(ctl: Host) -> None:
    started = ctl.check_output("systemctl show -p ActiveEnterTimestamp --value slurmctld")
    wanted = [
        {"name": "main", "default": True},
        {"name": "debug", "nodes": ["n2"]},
        {"name": "long", "options": {"MaxTime": "7-0"}},
    ]
    run = play("--limit", "ctl", slurm_partitions=wanted)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "long" in ctl.check_output("sinfo -h -o %R")
    # From 23.11 on a reload makes a new process; the service has not been started anew.
    assert ctl.check_output("systemctl show -p ActiveEnterTimestamp --value slurmctld") == started


def test_an_urgent_job_makes_room(ctl: Host) -> None:
    job = ctl.check_output(
        "su alice -c 'cd /tmp; sbatch --parsable -p main --gres=gpu:8 -w n1,n2 --mem=16 --wrap \"sleep 300\"'"
    )
    assert until(lambda: ctl.check_output(f"squeue -h -j {job} -o %T") == "RUNNING")
    out = ctl.run("timeout 120 su alice -c 'srun -Q -p main -w n1 --gres=gpu:8 --mem=16 --qos=urgent echo ran'")
    assert "ran" in out.stdout, out.stderr
    assert "Restarts=1" in ctl.check_output(f"scontrol show job {job}"), "it went back to the queue"


def test_logs_go_on_after_their_rotation(ctl: Host, n1: Host) -> None:
    for host, daemon in ((ctl, "slurmctld"), (ctl, "slurmdbd"), (n1, "slurmd")):
        wait = f"for i in $(seq 30); do [ -e /var/log/slurm/{daemon}.log ] && exit; sleep 1; done; exit 1"
        host.check_output(f"logrotate --force /etc/logrotate.d/{daemon}")
        assert host.run(wait).rc == 0, f"{daemon} writes to the file that was rotated away"


def test_a_new_munge_key_is_announced_and_locks_nobody_out(ctl: Host) -> None:
    before = ctl.file("/etc/munge/munge.key").sha256sum
    refused = play("--limit", "n1,ctl", slurm_munge_key_rotate=True)
    assert refused.returncode != 0 and "n2: not in this run, and would be locked out" in refused.stdout + refused.stderr
    told = play("--check", slurm_munge_key_rotate="true")  # as text, which --extra-vars name=value makes of it
    assert told.returncode == 0 and "a new munge key, on all 3 hosts at one time" in told.stdout, told.stdout
    assert ctl.file("/etc/munge/munge.key").sha256sum == before


def test_accounting_comes_back_from_its_backup(ctl: Host, tmp_path: Path) -> None:
    job = ctl.check_output("sbatch --parsable -p main --mem=16 --wrap true")
    assert until(lambda: "COMPLETED" in ctl.check_output(f"sacct -nPX -j {job} -o State"))
    run = play(book="playbooks/backup.yml", slurm_backup_directory=str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    (backup,) = tmp_path.iterdir()
    assert backup.stat().st_mode & 0o77 == 0
    ctl.check_output("systemctl stop slurmdbd; mariadb -e 'DROP DATABASE slurm_acct_db'")
    later = ctl.check_output("sbatch --parsable -p main --mem=16 --wrap true")
    run = play(book="playbooks/backup.yml", slurm_backup_directory=str(tmp_path), slurm_restore_file=str(backup))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "COMPLETED" in ctl.check_output(f"sacct -nPX -j {job} -o State")
    assert "vision" in ctl.check_output("sacctmgr -nP show account format=account")
    assert until(lambda: "COMPLETED" in ctl.check_output(f"sacct -nPX -j {later} -o State")), "what happened meanwhile"


def test_wrong_hosts_are_refused_before_anything_changes(ctl: Host) -> None:
    run = play("--limit", "ctl", slurm_partitions=[{"name": "main", "nodes": ["n1", "n9"]}])
    assert run.returncode != 0 and "slurm_partitions names n9" in run.stdout + run.stderr
    run = play("--limit", "n1", slurm_cgroup="v2")
    said = run.stdout + run.stderr
    assert run.returncode != 0 and "n1: Slurm" in said and "slurm_cgroup" in said
    run = play("--limit", "ctl,n1", slurm_controllers=["ctl", "n1"])
    said = run.stdout + run.stderr
    assert run.returncode != 0 and "two controllers need a file system that both mount" in said
