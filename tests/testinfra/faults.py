"""Runs of the site in the middle of which something breaks, and what has to be true afterwards.

Each fault comes between two tasks of a real run: the control node's process is stopped there, and goes on once the
fault is in place. The modules test_faults*.py load this one as a plugin, for its fixtures.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

Host = Any
PROJECT = Path(__file__).parents[2]
GIVEN: dict[str, Any] = yaml.safe_load((PROJECT / "molecule/faults/converge.yml").read_text(encoding="utf-8"))[0][
    "vars"
]
ROLES = ("ssh_trust", "host_tuning", "ethernet", "nvidia_driver", "node_health", "slurm")
HOSTS = ("ctl", "n1", "n2")
RECAP = re.compile(r"^(\w+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)


def until(question: Callable[[], Any], seconds: float = 180.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return answer


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and theirs, those that have ended left out."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        queue += (more := children.get(queue.pop(), []))
        found += more
    return found


class Converge:
    """The site in the background, as a user calls it; `roles` alone, with the scenario's variables and more."""

    def __init__(self, folder: Path, *words: str, roles: tuple[str, ...] = ROLES, **variables: Any) -> None:
        given = {**GIVEN, **{f"site_{role}": role in roles for role in ROLES}, **variables}
        number = len(list(folder.glob("*.log")))
        self.log = folder / f"{number}.log"
        # Secrets come from a file, as from a vault: arguments are for all to see.
        (folder / f"{number}.json").write_text(json.dumps(given), encoding="utf-8")
        command = ["ansible-playbook", "-i", "inventories/lab", "playbooks/site.yml", *words]
        # All headers, at once, so that they can be waited for.
        told = {"ANSIBLE_DISPLAY_OK_HOSTS": "1", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "1", "ANSIBLE_NOCOLOR": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "-e", f"@{folder}/{number}.json"],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), **told},
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def reach(self, task: str) -> None:
        """Wait until a task begins, named as "role : File | What happens" begins."""
        header = f"TASK [gpuops.cluster.{task}"
        assert until(lambda: header in self.said or self.process.poll() is not None, 600)
        assert header in self.said, self.said

    @contextlib.contextmanager
    def held_at(self, task: str) -> Iterator[None]:
        """Stop between that task and the next one. What its workers began comes to its end first."""
        self.reach(task)
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            assert until(lambda: not descendants(self.process.pid), 300)
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As a power cut of the control node."""
        os.kill(self.process.pid, signal.SIGSTOP)
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        return self.process.wait(timeout=1200)

    @property
    def recap(self) -> dict[str, tuple[int, int, int]]:
        """By host: tasks that changed something, whether it was unreachable, tasks that failed."""
        return {host: (int(c), int(u), int(f)) for host, c, u, f in RECAP.findall(self.said)}

    @property
    def failures(self) -> str:
        """What the run said of what failed."""
        return "\n".join(re.findall(r"^(?:fatal|failed|\[ERROR\]).*", self.said, re.MULTILINE))


Start = Callable[..., Converge]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Converge] = []

    def begin(*words: str, **variables: Any) -> Converge:
        runs.append(Converge(tmp_path, *words, **variables))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.kill()


@pytest.fixture
def heal(start: Start, hosts: dict[str, Host]) -> Start:
    """Run again with the same words and variables: it works, and once more: nothing changes."""

    def again(*words: str, broken: bool = False, **variables: Any) -> Converge:
        if not broken:
            whole(hosts)
        first = start(*words, **variables)
        assert first.end() == 0, first.said
        second = start(*words, **variables)
        assert second.end() == 0 and not any(changed for changed, _u, _f in second.recap.values()), second.said
        whole(hosts)
        return first

    return again


@pytest.fixture(scope="session")
def hosts(connect: Callable[[str], Host]) -> dict[str, Host]:
    return {name: connect(name) for name in HOSTS}


def idle(host: Host) -> bool:
    """Whether no module runs there, not even one whose control node is gone."""
    return bool(host.run("pgrep -f '[a]nsible|[a]pt-get'").rc == 1)


def whole(hosts: dict[str, Host]) -> None:
    """Nothing that a daemon reads is half-written, and nothing of a run is left."""
    for name, host in hosts.items():
        assert until(partial(idle, host)), f"{name}: a module still runs"
        host.check_output("sshd -t")
        host.check_output("apt-get -q check")
        assert host.check_output("dpkg --audit; find /var/lib/dpkg/updates -name '[0-9]*'") == "", name
        left = "find /etc /usr/local -xdev -name '.ansible_tmp*' -o -name '*.tmp' -o -name '*.dpkg-new'"
        assert host.check_output(left) == "", name
        # What a control node that dies has brought stays there; others do not read it.
        assert host.run("find /root/.ansible/tmp -mindepth 1 -maxdepth 1 -perm /077").stdout == "", name
    # Any client of Slurm reads all of slurm.conf first.
    ping = hosts["ctl"].run("scontrol ping")
    assert "ctl is" in ping.stdout and "error" not in ping.stderr, ping.stdout + ping.stderr


def job_state(ctl: Host, job: str) -> str:
    return str(ctl.run(f"squeue -h -j {job} -o '%T %r'").stdout.strip())


@pytest.fixture(scope="session")
def job(hosts: dict[str, Host]) -> Iterator[str]:
    """A long job of alice's on n1."""
    submit = "cd /tmp; sbatch --parsable -w n1 --mem=16 -o /dev/null --wrap 'sleep 14400'"
    number = hosts["ctl"].check_output(f'su alice -c "{submit}"')
    assert until(lambda: job_state(hosts["ctl"], number).startswith("RUNNING"))
    yield number
    hosts["ctl"].run(f"scancel {number}")


@cache
def inventory(host: str) -> str:
    command = ["ansible-inventory", "-i", "inventories/lab", "--host", host]
    return subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout


def authority() -> Path:
    return Path(json.loads(inventory("ctl"))["ansible_ssh_private_key_file"]).parent / "ssh_trust_ca"


def treasure(hosts: dict[str, Host]) -> dict[str, str]:
    """What must not be lost: keys of the authority, of munge and of hosts; accounts and their users."""
    found = {name: (authority() / name).read_text(encoding="utf-8") for name in ("ca", "ca.pub")}
    for name, host in hosts.items():
        found[name] = host.check_output("sha256sum /etc/munge/munge.key /etc/ssh/ssh_host_ed25519_key")
    found["accounts"] = hosts["ctl"].check_output("sacctmgr -nP show assoc format=account,user")
    return found


@pytest.fixture
def nothing_is_lost(hosts: dict[str, Host], job: str) -> Iterator[None]:
    before = treasure(hosts)
    started = hosts["ctl"].check_output(f"scontrol show job {job} | grep -o 'StartTime=[^ ]*\\|Restarts=[^ ]*'")
    yield
    assert until(lambda: job_state(hosts["ctl"], job).startswith("RUNNING"), 60), job_state(hosts["ctl"], job)
    assert hosts["ctl"].check_output(f"scontrol show job {job} | grep -o 'StartTime=[^ ]*\\|Restarts=[^ ]*'") == started
    assert treasure(hosts) == before


@contextlib.contextmanager
def inside(host: Host, *namespaces: str) -> Iterator[list[str]]:
    """Words that run a program in namespaces of a host, with this machine's rights: the container has few."""
    wanted = host.check_output("readlink /proc/1/ns/mnt")
    pids = []
    for path in Path("/proc").glob("[0-9]*/ns/mnt"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == wanted:
                pids.append(int(path.parts[2]))
    yield ["nsenter", "--target", str(min(pids)), *(f"--{name}" for name in namespaces), "--"]


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def anew(host: Host, command: str = "true") -> str | None:
    """What a command says over a connection of its own; None while there is none."""
    words = ["ssh", "-F", host.backend.ssh_config, "-o", "ControlPath=none", "-o", "ConnectTimeout=5"]
    done = subprocess.run([*words, host.backend.get_hostname(), command], capture_output=True, text=True, check=False)
    return None if done.returncode == 255 else done.stdout.strip()


@contextlib.contextmanager
def full(host: Host, folder: str) -> Iterator[None]:
    """A folder lies on a small disk, and that is full to the last block."""
    small = "/srv/gpuops-small/full"
    host.check_output(f"cp -a {folder} {small} && mv {folder} {folder}.real && ln -s {small} {folder}")
    host.run("dd if=/dev/zero of=/srv/gpuops-small/fill bs=4k; dd if=/dev/zero of=/srv/gpuops-small/rest bs=1")
    try:
        yield
    finally:
        host.check_output(f"rm {folder} && mv {folder}.real {folder} && rm -rf /srv/gpuops-small/*")
