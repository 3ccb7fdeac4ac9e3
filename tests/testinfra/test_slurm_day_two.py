"""A running cluster with two controllers and a login node: what breaks, who may log in, nodes that leave and join."""

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
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_state as states
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_topology as topology

Host = Any
PROJECT = Path(__file__).parents[2]
SCENARIO = PROJECT / "molecule/slurm_day_two/converge.yml"
OTHERS = (
    *("host_tuning", "ethernet", "infiniband", "nvidia_driver", "cuda_toolkit"),
    *("pytorch_env", "node_health", "monitoring"),
)


def scenario() -> dict[str, Any]:
    """The variables of the scenario's play for Slurm."""
    found: dict[str, Any] = yaml.safe_load(SCENARIO.read_text(encoding="utf-8"))[1]["vars"]
    return found


def play(*arguments: str, book: str = "", file: Path = SCENARIO, **variables: Any) -> subprocess.CompletedProcess[str]:
    """The scenario's playbook, or one of the collection with the scenario's variables, as a user calls it."""
    given: dict[str, Any] = {f"site_{role}": False for role in OTHERS} | scenario() if book else {}
    path = f"playbooks/{book}.yml" if book else str(file)
    command = ["ansible-playbook", "-i", "inventories/lab", path, "-e", json.dumps({**given, **variables}), *arguments]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def until(question: Callable[[], Any], seconds: float = 180.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return answer


def state(host: Host, job: str) -> str:
    return str(host.run(f"squeue -h -j {job} -o %T").stdout.strip())


@pytest.fixture(scope="module")
def n3(connect: Callable[[str], Host]) -> Host:
    return connect("n3")


@pytest.fixture(scope="module")
def n4(connect: Callable[[str], Host]) -> Host:
    return connect("n4")


@pytest.fixture(scope="module")
def n5(connect: Callable[[str], Host]) -> Host:
    return connect("n5")


@pytest.fixture(autouse=True)
def _quiet(n4: Host) -> Iterator[None]:
    yield
    n4.run("scancel --state=PENDING --partition=main; scancel --state=RUNNING --partition=main")
    assert until(lambda: n4.run("squeue -h").stdout == "")


def test_a_login_node_is_a_client_and_no_more(n4: Host) -> None:
    assert not n4.package("slurmd").is_installed and not n4.package("slurmctld").is_installed
    out = n4.check_output("su alice -c 'cd /tmp; srun -Q -N2 --mem=16 --gres=gpu:4 hostname'")
    assert sorted(out.split()) == ["n1", "n2"]


def test_jobs_ask_for_local_disks_and_features(n4: Host) -> None:
    ask = "srun -Q -N1 --mem=16 --immediate=60 -C nvme --gres=gpu:1,scratch:{} echo ran"
    assert n4.check_output(ask.format("60G")) == "ran"
    assert n4.run(ask.format("101G")).rc != 0


def test_a_second_user_s_share_is_counted(n4: Host) -> None:
    n4.check_output("su alice -c 'cd /tmp; srun -Q -N2 --mem=16 --gres=gpu:4 sleep 5'")
    shares = "sshare -nP -A vision -u alice -o User,RawUsage"
    assert until(lambda: int(n4.check_output(shares).partition("alice|")[2] or 0) > 0), n4.check_output("sshare -a")


def test_plugins_of_slurm_are_loaded_on_nodes(n1: Host, n4: Host) -> None:
    assert n4.check_output("srun -Q -w n1 --mem=16 sh -c 'echo $GPUOPS_SPANK'") == "by-plugstack"
    assert n1.package("hwloc-nox").is_installed and n4.package("hwloc-nox").is_installed
    assert "seen.so" not in n1.file("/etc/slurm/plugstack.conf").content_string, "it comes from the controller"


def test_gpus_of_others_do_not_open(n4: Host) -> None:
    ask = "for i in 0 1 2 3; do { : </dev/nvidia\\$i; } 2>&1; done; true"
    out = n4.check_output(f"su alice -c 'cd /tmp; srun -Q -w n1 -n1 --mem=16 --gres=gpu:1 bash -c \"{ask}\"'")
    assert out.count("Operation not permitted") == 3, out


def test_a_new_node_gets_jobs_once_the_gate_has_passed(n1: Host, n4: Host, n5: Host, tmp_path: Path) -> None:
    job = n4.check_output("cd /tmp; sbatch --parsable -w n1 --mem=16 --wrap 'sleep 900'")
    assert until(lambda: state(n4, job) == "RUNNING")
    n1.check_output("touch /root/before")
    started = n1.check_output("systemctl show -p ExecMainStartTimestamp --value slurmd")
    wanted: dict[str, Any] = {
        "slurm_nodes": ["n1", "n2", "n5"],
        "add_nodes": "n5",
        "add_nodes_report_dir": str(tmp_path),
    }
    n5.check_output("echo wrong > /etc/gpuops-lab-nccl-fault")
    run = play(book="add_nodes", **wanted)
    assert run.returncode != 0, run.stdout
    node = n4.check_output("scontrol --oneliner show node n5")
    assert "DRAIN" in node and "the gate has not passed" in node, node + run.stdout
    assert json.loads((tmp_path / "acceptance.json").read_text())["verdict"] == "fail"

    n5.check_output("rm /etc/gpuops-lab-nccl-fault")
    run = play(book="add_nodes", **wanted)
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads((tmp_path / "acceptance.json").read_text())["verdict"] == "pass"
    assert n4.check_output("srun -Q -w n5 --mem=16 --gres=gpu:4 hostname") == "n5"
    assert state(n4, job) == "RUNNING"
    assert n1.check_output("find /etc /usr /opt /root -newer /root/before -type f ! -name before") == "", "untouched"
    assert n1.check_output("systemctl show -p ExecMainStartTimestamp --value slurmd") == started
    assert n4.run("ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null n5 true").rc == 0


def test_a_node_leaves_while_the_others_work(n4: Host, n5: Host) -> None:
    job = n4.check_output("cd /tmp; sbatch --parsable -w n1 --mem=16 --wrap 'sleep 900'")
    n4.check_output("srun -Q -w n5 --mem=16 true")
    assert until(lambda: state(n4, job) == "RUNNING")
    records = n4.check_output("sacct -nX -a -N n5 -S now-1days -o JobID").split()
    assert records
    strict = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null n1 true"
    got_in = f"if {strict}; then echo in; else echo refused; fi"
    assert n5.check_output(got_in) == "in"
    run = play(book="remove_nodes", remove_nodes="n5")
    assert run.returncode == 0, run.stdout + run.stderr
    assert n4.check_output("sinfo -h -N -o %N").split() == ["n1", "n2"]
    assert state(n4, job) == "RUNNING"
    assert set(records) <= set(n4.check_output("sacct -nX -a -N n5 -S now-1days -o JobID").split()), (
        "its jobs are known"
    )
    assert n5.check_output(got_in) == "refused", "nobody believes its keys"
    assert n4.check_output(got_in.replace("n1", "n5")) == "refused"
    assert n4.check_output(got_in) == "in"


def test_the_second_controller_takes_over_and_jobs_survive(ctl: Host, n3: Host, n4: Host) -> None:
    assert "ctl is UP" in n4.run("scontrol ping").stdout and "n3 is UP" in n4.run("scontrol ping").stdout
    job = n4.check_output("cd /tmp; sbatch --parsable -w n1 --mem=16 --wrap 'sleep 900'")
    assert until(lambda: state(n4, job) == "RUNNING")
    # Slurm saves what has changed, and perhaps did so before somebody looked.
    n3.check_output("touch /srv/gpuops-shared/looked")
    n4.check_output("scontrol update JobId=%s Comment=saved", job)
    assert until(lambda: n3.run("test /srv/gpuops-shared/slurmctld/job_state -nt /srv/gpuops-shared/looked").rc == 0)
    ctl.check_output("systemctl kill -s KILL slurmctld; systemctl stop slurmctld")
    assert until(lambda: state(n4, job) == "RUNNING"), n4.run("scontrol ping").stdout
    assert "ctl is DOWN" in n4.run("scontrol ping").stdout
    meanwhile = n4.check_output("cd /tmp; sbatch --parsable --mem=16 --wrap true")
    assert until(lambda: state(n4, meanwhile) in ("", "COMPLETED")), n4.run(f"scontrol show job {meanwhile}").stdout

    run = play()
    assert run.returncode == 0, run.stdout + run.stderr
    assert "ctl is UP" in ctl.run("scontrol ping").stdout
    assert state(ctl, job) == "RUNNING"
    assert until(lambda: ctl.check_output(f"sacct -nPX -j {meanwhile} -o State") == "COMPLETED"), "its record is lost"
    run = play()
    assert run.returncode == 0 and "changed: slurm" not in run.stdout, run.stdout


def test_the_controller_moves_and_comes_back(ctl: Host, n3: Host, n4: Host) -> None:
    """As docs/day-two.md says, with the state on a disk that both have and the database where it was."""
    job = n4.check_output("cd /tmp; sbatch --parsable -w n1 --mem=16 --wrap 'sleep 900'")
    assert until(lambda: state(n4, job) == "RUNNING")
    ctl.check_output("systemctl disable --now slurmctld")
    run = play(**{**scenario(), "slurm_controllers": ["n3"], "slurm_databases": ["ctl"]})
    assert run.returncode == 0, run.stdout + run.stderr
    ping = n4.check_output("scontrol ping")
    assert "n3 is UP" in ping and "at ctl" not in ping
    assert state(n4, job) == "RUNNING"
    assert n4.check_output("srun -Q -w n2 --mem=16 --gres=gpu:1 hostname") == "n2"
    assert not ctl.service("slurmctld").is_running

    run = play()
    assert run.returncode == 0, run.stdout + run.stderr
    ping = n4.check_output("scontrol ping")
    assert "ctl is UP" in ping and "n3 is UP" in ping
    assert state(n4, job) == "RUNNING"
    n4.check_output(f"scancel {job}")


def test_two_controllers_that_do_not_see_the_same_jobs_are_refused(n3: Host) -> None:
    refused = play("--limit", "ctl,n3", **{**scenario(), "slurm_state_shared": False})
    said = refused.stdout + refused.stderr
    assert refused.returncode != 0 and "two controllers need a file system that both mount" in said, said
    n3.check_output("systemctl stop slurmctld; mkdir -p /srv/apart; chown slurm: /srv/apart")
    n3.check_output("mount --bind /srv/apart /srv/gpuops-shared/slurmctld")
    refused = play("--limit", "ctl,n3")
    n3.check_output("umount /srv/gpuops-shared/slurmctld")
    said = refused.stdout + refused.stderr
    assert refused.returncode != 0 and "is not the directory that ctl has there" in said, said
    run = play("--limit", "ctl,n3")
    assert run.returncode == 0 and n3.service("slurmctld").is_running, run.stdout


def test_only_users_with_a_job_get_in(n4: Host, n1: Host, connect: Callable[[str], Host]) -> None:
    config = connect("n1").backend.ssh_config

    def login(user: str, command: str = "true") -> subprocess.CompletedProcess[str]:
        words = ["ssh", "-F", config, "-o", "LogLevel=INFO", "-l", user, "n1", command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    assert login("root").returncode == 0 and login("ops").returncode == 0, "whoever keeps the node going gets in"
    out = login("alice")
    assert out.returncode != 0 and "no active jobs" in out.stdout + out.stderr, out.stderr
    job = n4.check_output("su alice -c \"cd /tmp; sbatch --parsable -w n1 --mem=64 --gres=gpu:1 --wrap 'sleep 600'\"")
    assert until(lambda: state(n4, job) == "RUNNING")
    inside = login("alice", "cat /proc/self/cgroup; for i in 0 1 2 3; do { : </dev/nvidia$i; } 2>&1; done; true")
    assert inside.returncode == 0, inside.stderr
    assert f"job_{job}/" in inside.stdout, "the login belongs to the job"
    assert inside.stdout.count("Operation not permitted") == 3, "and has the job's GPU alone"

    n4.check_output(f"scancel {job}")
    run = play("--limit", "n1", **{**scenario(), "slurm_pam_adopt": False})
    assert run.returncode == 0 and login("alice").returncode == 0, "and back"
    run = play("--limit", "n1")
    assert run.returncode == 0 and login("alice").returncode != 0


def test_killed_daemons_lose_no_job(ctl: Host, n4: Host) -> None:
    """Jobs end meanwhile. None ends just before: what slurmctld learnt since it last saved its state would be gone."""
    submit = "cd /tmp; for i in $(seq 20); do sbatch --parsable -n1 --mem=16 -o /dev/null --wrap 'sleep 20'; done"
    jobs = n4.check_output(submit).split()
    assert until(lambda: n4.check_output("squeue -h -t R"))
    saved = int(ctl.check_output("date +%s"))
    assert until(lambda: int(ctl.check_output("stat -c %Y /srv/gpuops-shared/slurmctld/job_state")) > saved)
    ctl.check_output("systemctl kill -s KILL mariadb slurmdbd slurmctld; systemctl stop mariadb slurmdbd slurmctld")
    run = play()
    assert run.returncode == 0, run.stdout + run.stderr
    assert until(lambda: n4.run("squeue -h").stdout == "", 600), n4.run("squeue").stdout
    asked = f"sacct -nPX -j {','.join(jobs)} -o JobID,State"
    wanted = {f"{job}|COMPLETED" for job in jobs}
    assert until(lambda: set(n4.check_output(asked).split()) == wanted), n4.check_output(asked)


def test_a_new_munge_key_costs_no_job(ctl: Host, n4: Host, connect: Callable[[str], Host]) -> None:
    before = ctl.file("/etc/munge/munge.key").sha256sum
    # Jobs are handed in all the time.
    n4.check_output("rm -f /tmp/stop /tmp/jobs")
    submit = "cd /tmp; sbatch --parsable -p main -N2 --mem=16 -o /dev/null --wrap true; sleep 3"
    n4.check_output(f"nohup sh -c 'while [ ! -e /tmp/stop ]; do {submit}; done' >/tmp/jobs 2>/tmp/refused </dev/null &")
    run = play(slurm_munge_key_rotate="true")
    n4.check_output("touch /tmp/stop")
    assert run.returncode == 0, run.stdout + run.stderr
    sums = {connect(name).file("/etc/munge/munge.key").sha256sum for name in ("ctl", "n1", "n2", "n3", "n4")}
    assert len(sums) == 1 and before not in sums
    jobs = n4.check_output("cat /tmp/jobs").split()
    assert len(jobs) > 2 and n4.check_output("cat /tmp/refused") == ""
    assert until(lambda: not n4.check_output("squeue -h"), 900), n4.check_output("squeue")
    asked = f"sacct -nPX -j {','.join(jobs)} -o JobID,State"

    def lost() -> list[str]:
        return [line for line in n4.check_output(asked).split() if not line.endswith("|COMPLETED")]

    # A message of the very moment may be refused by the other key: at most the job that it was about notices.
    assert until(lambda: len(lost()) <= 1), lost()


def test_a_stale_munge_key_and_wrong_figures_are_repaired(ctl: Host, n2: Host, n4: Host) -> None:
    right = ctl.file("/etc/slurm/slurm.conf").sha256sum
    n2.check_output("head -c 1024 /dev/urandom >/tmp/key; cat /tmp/key >/etc/munge/munge.key; systemctl restart munge")
    ctl.check_output("sed -i 's/ RealMemory=[0-9]*/ RealMemory=99999999/' /etc/slurm/slurm.conf")
    ctl.check_output("systemctl restart slurmctld")
    reason = "sinfo -h -N -n n1 -o '%T %E'"
    assert until(lambda: "Low RealMemory" in n4.check_output(reason)), n4.check_output(reason)
    run = play()
    said = run.stdout + run.stderr
    assert "n1 is drained (Low RealMemory" in said, said
    assert ctl.file("/etc/slurm/slurm.conf").sha256sum == right
    assert n2.file("/etc/munge/munge.key").sha256sum == ctl.file("/etc/munge/munge.key").sha256sum
    ctl.run("scontrol update nodename=n1 state=resume; scontrol update nodename=n2 state=resume")
    run = play()
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture
def python_ahead(n2: Host) -> str:
    """A Python for n2 whose clock is ten minutes ahead; a container's own clock is the machine's."""
    path, folder = "/usr/local/bin/python_ahead", "/srv/ahead"
    ahead = "import time\nnow = time.time\ntime.time = lambda: now() + 600\n"
    n2.check_output(f"mkdir -p {folder}; printf '{ahead}' >{folder}/usercustomize.py")
    start = f'exec env PYTHONPATH={folder} /usr/bin/python3 "$@"'
    n2.check_output(f"printf '#!/bin/sh\n%s\n' '{start}' >{path}; chmod 755 {path}")
    return path


def test_a_clock_that_is_off_is_refused(ctl: Host, python_ahead: str, tmp_path: Path) -> None:
    """Slurm's play alone: ssh_trust also works on the control node, which has no such Python."""
    before = ctl.file("/etc/slurm/slurm.conf").sha256sum
    alone = tmp_path / "slurm.yml"
    alone.write_text(yaml.safe_dump(yaml.safe_load(SCENARIO.read_text(encoding="utf-8"))[1:]), encoding="utf-8")
    run = play("--limit", "n2", file=alone, ansible_python_interpreter=python_ahead)
    said = run.stdout + run.stderr
    assert run.returncode != 0 and "n2: its clock is 6" in said and "seconds ahead of the control node" in said, said
    assert ctl.file("/etc/slurm/slurm.conf").sha256sum == before


def test_a_host_name_with_a_domain_is_the_same_node(n2: Host, n4: Host) -> None:
    n2.check_output("hostname n2.cluster.example; systemctl restart slurmd")
    run = play("--limit", "n2,ctl")
    n2.check_output("hostname n2")
    assert run.returncode == 0 and "changed: slurm" not in run.stdout, run.stdout + run.stderr
    assert n4.check_output("sinfo -h -N -n n2 -o %T") == "idle"


def test_a_lost_gpu_makes_no_smaller_node(ctl: Host, n2: Host) -> None:
    lab = os.environ.get("GPUOPS_LAB_NAME", "lab")
    before = ctl.file("/etc/slurm/slurm.conf").sha256sum
    fault = ["./run", "lab", "fault", "--name", lab, "n2"]
    subprocess.run([*fault, "gpu_missing=1"], cwd=PROJECT, check=True, capture_output=True)
    run = play("--limit", "n2,ctl")
    subprocess.run([*fault, "--clear"], cwd=PROJECT, check=True, capture_output=True)
    assert "slurm.conf keeps the 4 GPUs that were seen before" in run.stdout, run.stdout + run.stderr
    assert ctl.file("/etc/slurm/slurm.conf").sha256sum == before


@pytest.fixture
def full_spool(n2: Host, n4: Host) -> Iterator[None]:
    """slurmd's directory on n2 lies on a small disk that is full."""
    spool, small = "/var/lib/slurm/slurmd", "/srv/gpuops-small/slurmd"
    n2.check_output(
        f"systemctl stop slurmd; mv {spool} {spool}.real; cp -a {spool}.real {small}; ln -s {small} {spool}"
    )
    n2.check_output("systemctl start slurmd")
    n4.check_output("srun -Q -w n2 --mem=16 true")
    n2.check_output("dd if=/dev/zero of=/srv/gpuops-small/fill bs=64k 2>/dev/null; true")
    yield
    n2.check_output(f"systemctl stop slurmd; rm -rf {spool} /srv/gpuops-small/*; mv {spool}.real {spool}")
    n2.check_output("systemctl start slurmd")


@pytest.mark.usefixtures("full_spool")
def test_a_full_spool_disk_costs_the_node_and_not_the_job(ctl: Host, n2: Host, n4: Host) -> None:
    job = n4.check_output("cd /tmp; sbatch --parsable -w n2 -n1 --mem=16 -o /dev/null --wrap 'true'")
    drained = "sinfo -h -N -n n2 -o '%T %E'"
    assert until(lambda: n4.check_output(drained) == "drained SlurmdSpoolDir is full", 400), n4.check_output(drained)
    assert state(n4, job) == "PENDING", "it went back to the queue"
    run = play("--limit", "n2,ctl")
    said = run.stdout + run.stderr
    assert run.returncode != 0 and "n2 is drained (SlurmdSpoolDir is full): once the cause is gone" in said, said
    # What the first start left there would make the next one fail: "File exists".
    n2.check_output(f"rm -rf /srv/gpuops-small/fill /var/lib/slurm/slurmd/job{int(job):05d}")
    ctl.check_output("scontrol update nodename=n2 state=resume")
    ctl.run(f"scontrol release {job}; scontrol update jobid={job} starttime=now")
    done = f"sacct -nPX -j {job} -o State"
    assert until(lambda: n4.check_output(done).split()[-1:] == ["COMPLETED"], 400), n4.check_output(done)


MANY = "/srv/gpuops-shared/many"


def many(nodes: dict[str, list[str]]) -> dict[str, str]:
    """Files of a second cluster as the role renders them, with several slurmd on each host."""
    options: dict[str, Any] = {
        "ClusterName": "many",
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "SlurmctldPort": 16817,
        "SlurmctldPidFile": "/run/many-ctl.pid",
        "SlurmctldLogFile": "/var/log/slurm/many-ctl.log",
        "StateSaveLocation": f"{MANY}/state",
        "SlurmdPidFile": "/run/many-%n.pid",
        "SlurmdLogFile": "/var/log/slurm/many-%n.log",
        "SlurmdSpoolDir": "/var/lib/slurm/many-%n",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "ReturnToService": 2,
        "MpiDefault": "none",
    }
    shape = {"cpus": 2, "sockets": 1, "cores": 2, "threads": 1, "real_memory": 500, "gres": []}
    state = {**states.empty(), "controllers": {"ctl": {"name": "ctl", "address": ""}}}
    for host, names in nodes.items():
        for index, name in enumerate(names):
            words = {"NodeHostname": host, "Port": 17001 + index}
            state["nodes"][name] = {"address": "", "options": words, "node": {"name": name, **shape}, "switch": ""}
    parts = {"options": options, "cgroup": {}, "partitions": [{"name": "main", "default": True}], "topology": {}}
    return topology.files(parts, state, "22.05.8")


@pytest.fixture
def thirty_two(ctl: Host, n1: Host, n2: Host) -> Iterator[list[str]]:
    """A second slurmctld on ctl and 32 slurmd, 16 in each of two containers: light enough for a small machine."""
    nodes = {"n1": [f"x{number}" for number in range(1, 17)], "n2": [f"x{number}" for number in range(17, 33)]}
    ctl.check_output(f"mkdir -p {MANY}/state; chown slurm: {MANY}/state")
    for name, text in many(nodes).items():
        ctl.check_output(f"printf %%s %s >{MANY}/{name}", text)
    ctl.check_output(f"cd /; slurmctld -c -f {MANY}/slurm.conf")
    for host in (n1, n2):
        names = nodes[host.check_output("hostname")]
        host.check_output(f"cd /; for i in {' '.join(names)}; do slurmd -f {MANY}/slurm.conf -N $i || exit 1; done")
    yield [name for names in nodes.values() for name in names]
    for host in (ctl, n1, n2):
        host.run("for pid in /run/many-*.pid; do kill $(cat $pid); done; sleep 1; rm -rf /var/lib/slurm/many-*")
    ctl.check_output(f"rm -rf {MANY}")


def test_thirty_two_slurmd_register_and_run_one_job(n4: Host, thirty_two: list[str]) -> None:
    conf = f"SLURM_CONF={MANY}/slurm.conf"
    asked = f"{conf} sinfo -h -N -o '%N %T'"
    wanted = {f"{name} idle" for name in thirty_two}
    assert until(lambda: set(n4.check_output(asked).splitlines()) == wanted, 300), n4.check_output(asked)
    out = n4.check_output(f"{conf} srun -Q -N32 --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME'")
    assert sorted(out.split()) == sorted(thirty_two)
