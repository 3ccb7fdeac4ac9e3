"""What breaks while the site is run: it says what and where, leaves nothing half-written, and the next run converges.

Each fault comes between two tasks of a real run: the control node's process is stopped there, and goes on once the
fault is in place.

Faults that other scenarios prove, and that are not repeated here:

- a host's clock is off: test_slurm_day_two, test_a_clock_that_is_off_is_refused
- two hosts with one address: test_preflight, test_everything_that_is_wrong_is_said_at_once
- names that do not resolve before the run: test_preflight, test_names_that_do_not_resolve_are_named
- apt's locks are held; dpkg was killed under a CUDA repository: molecule/cuda_toolkit, converge.yml and prepare.yml
- daemons were killed before the run: test_slurm_day_two, test_killed_daemons_lose_no_job
- a full disk under slurmd: test_slurm_day_two, test_a_full_spool_disk_costs_the_node_and_not_the_job
- a mirror's sums are not the ones named: molecule/nvidia_driver, prepare.yml
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

Host = Any
PROJECT = Path(__file__).parents[2]
LAB = os.environ.get("GPUOPS_LAB_NAME", "lab")
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


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Converge]]:
    runs: list[Converge] = []

    def begin(*words: str, **variables: Any) -> Converge:
        runs.append(Converge(tmp_path, *words, **variables))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.kill()


@pytest.fixture
def heal(start: Callable[..., Converge], hosts: dict[str, Host]) -> Callable[..., Converge]:
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


@pytest.fixture(scope="module")
def job(hosts: dict[str, Host]) -> Iterator[str]:
    """A long job of alice's on n1."""
    submit = "cd /tmp; sbatch --parsable -w n1 --mem=16 -o /dev/null --wrap 'sleep 14400'"
    number = hosts["ctl"].check_output(f'su alice -c "{submit}"')
    assert until(lambda: job_state(hosts["ctl"], number).startswith("RUNNING"))
    yield number
    hosts["ctl"].run(f"scancel {number}")


def treasure(hosts: dict[str, Host]) -> dict[str, str]:
    """What must not be lost: keys of the authority, of munge and of hosts; accounts and their users."""
    authority = Path(json.loads(inventory("ctl"))["ansible_ssh_private_key_file"]).parent / "ssh_trust_ca"
    found = {name: (authority / name).read_text(encoding="utf-8") for name in ("ca", "ca.pub")}
    for name, host in hosts.items():
        found[name] = host.check_output("sha256sum /etc/munge/munge.key /etc/ssh/ssh_host_ed25519_key")
    found["accounts"] = hosts["ctl"].check_output("sacctmgr -nP show assoc format=account,user")
    return found


def inventory(host: str) -> str:
    command = ["ansible-inventory", "-i", "inventories/lab", "--host", host]
    return subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def _nothing_is_lost(hosts: dict[str, Host], job: str) -> Iterator[None]:
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


# Two people at once, and a control node that dies.


def test_a_second_run_is_refused_and_other_hosts_are_free(
    start: Callable[..., Converge], hosts: dict[str, Host]
) -> None:
    first = start("--limit", "n1,n2", roles=("host_tuning",))
    with first.held_at("host_tuning : Configure | Make the folder"):
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


def test_a_run_of_another_control_node_counts_until_force(
    start: Callable[..., Converge], hosts: dict[str, Host]
) -> None:
    held = start("--limit", "n1", roles=("host_tuning",))
    with held.held_at("host_tuning : Configure | Make the folder"):
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
    start: Callable[..., Converge],
    heal: Callable[..., Converge],
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


def test_ssh_to_one_node_is_cut(
    start: Callable[..., Converge], heal: Callable[..., Converge], hosts: dict[str, Host]
) -> None:
    given: dict[str, Any] = {"roles": ("host_tuning",), "host_tuning_nofile": 1048560}
    run = start(**given)
    with contextlib.ExitStack() as stack:
        with run.held_at("host_tuning : Configure | Make the folder"):
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


def test_a_node_reboots(start: Callable[..., Converge], heal: Callable[..., Converge], hosts: dict[str, Host]) -> None:
    """Its job goes back to the queue and runs again, the one on n1 goes on; its record of the run is gone with /run."""
    ctl, n2 = hosts["ctl"], hosts["n2"]
    submit = "cd /tmp; sbatch --parsable --requeue -w n2 --mem=16 -o /dev/null --wrap 'sleep 14400'"
    job = ctl.check_output(f'su alice -c "{submit}"')
    assert until(lambda: job_state(ctl, job).startswith("RUNNING"))
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 23}}
    run = start(**given)
    booted = "systemctl show -p UserspaceTimestampMonotonic --value"
    with run.held_at("slurm : Munge | Put the key"):
        before = n2.check_output(booted)
        assert n2.file("/run/gpuops-run.json").exists
        anew(n2, "systemctl reboot")
        assert until(lambda: anew(n2, booted) not in (None, "", before))
    if run.end():
        assert "n2" in "".join(re.findall(r"^(?:fatal|\[ERROR\]).*", run.said, re.MULTILINE)), run.said
    assert anew(n2, "ls /run/gpuops-run.json") == "", "freed by the reboot"
    assert until(lambda: anew(n2, "systemctl is-system-running") in ("running", "degraded"))
    heal(**given)
    assert until(lambda: job_state(ctl, job).startswith("RUNNING"), 400), job_state(ctl, job)
    ctl.check_output(f"scancel {job}")


# Disks.


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


def test_the_controller_s_disk_is_full(
    start: Callable[..., Converge], heal: Callable[..., Converge], hosts: dict[str, Host]
) -> None:
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_config_extra": {"MessageTimeout": 24}}
    ctl = hosts["ctl"]
    before = ctl.check_output("cd /etc/slurm && sha256sum *.conf nodes.json")
    run = start(**given)
    with contextlib.ExitStack() as stack:
        with run.held_at("slurm : Munge | Put the key"):
            stack.enter_context(full(ctl, "/etc/slurm"))
        assert run.end() != 0, run.said
        assert "No space left on device" in run.said and run.recap["ctl"][2] == 1, run.said
        assert ctl.check_output("cd /etc/slurm && sha256sum *.conf nodes.json") == before
        assert "ctl is UP" in ctl.check_output("scontrol ping")
    heal(**given)


# Packages and mirrors.


def interrupt(host: Host, pattern: str) -> None:
    """Kill dpkg, and apt, as soon as there is a file that it has unpacked and not yet put in its place."""
    wait = f"until compgen -G '{pattern}' >/dev/null; do :; done"
    kill = "pkill -KILL -x dpkg; pkill -KILL -x apt-get; dpkg --audit"
    assert host.check_output("timeout 300 bash -c %s", f"{wait}; {kill}"), "it was not in the middle of anything"


def test_dpkg_is_killed(start: Callable[..., Converge], heal: Callable[..., Converge], n2: Host) -> None:
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_packages_extra": ["vim-runtime"]}
    run = start("--limit", "n2", **given)
    run.reach("slurm : Install | Have apt ready")
    interrupt(n2, "/usr/share/vim/vim*/*/*.dpkg-new")
    assert run.end() != 0 and run.recap["n2"][2] == 1, run.said
    heal("--limit", "n2", broken=True, **given)


# Secrets.


def authority() -> Path:
    return Path(json.loads(inventory("ctl"))["ansible_ssh_private_key_file"]).parent / "ssh_trust_ca"


def test_a_munge_key_that_is_not_there_is_named_before_anything_changes(start: Callable[..., Converge]) -> None:
    missing = "{{ lookup('ansible.builtin.file', '/nowhere/munge.key') }}"
    run = start(roles=("slurm",), slurm_munge_key=missing, slurm_config_extra={"MessageTimeout": 27})
    assert run.end() != 0 and "/nowhere/munge.key" in run.said, run.said
    assert all(changed == 0 for changed, _u, _f in run.recap.values()), run.said


def spellings(secret: bytes) -> list[bytes]:
    """A secret as it may turn up in a text, without the ends that depend on what stands beside it."""
    middle = secret[3 : len(secret) // 3 * 3]
    return [
        secret,
        base64.b64encode(middle),
        secret.hex().encode(),
        json.dumps(secret.decode("latin-1")).encode()[1:-1],
    ]


def test_no_secret_is_told(start: Callable[..., Converge], hosts: dict[str, Host], tmp_path: Path) -> None:
    """A run that gives out all of them, at its most talkative; then output, facts, files that others can read."""
    ctl, n2 = hosts["ctl"], hosts["n2"]
    munge = base64.b64decode(ctl.check_output("base64 -w0 /etc/munge/munge.key"))
    private = (authority() / "ca").read_bytes().splitlines()
    secrets = [munge, GIVEN["ssh_trust_ca_passphrase"].encode(), *private[1:-1]]
    n2.check_output("head -c 1024 /dev/urandom > /etc/munge/munge.key; systemctl restart munge")
    n2.check_output("rm -f /etc/ssh/ssh_trust_key_root* /etc/ssh/ssh_trust_applied")
    os.environ.update(ANSIBLE_CACHE_PLUGIN="jsonfile", ANSIBLE_CACHE_PLUGIN_CONNECTION=str(tmp_path / "facts"))
    try:
        key = base64.b64encode(munge).decode()
        run = start("-vvv", "--diff", roles=("ssh_trust", "slurm"), slurm_munge_key=key)
        assert run.end() == 0, run.said
    finally:
        del os.environ["ANSIBLE_CACHE_PLUGIN"], os.environ["ANSIBLE_CACHE_PLUGIN_CONNECTION"]
    assert run.recap["n2"][0] > 2, "it was given its keys"
    secrets += n2.file("/etc/ssh/ssh_trust_key_root").content.splitlines()[1:-1]
    said = run.log.read_bytes()
    facts = b"".join(path.read_bytes() for path in (tmp_path / "facts").iterdir())
    assert b"distribution" in facts
    spelt = [text for secret in secrets for text in spellings(secret)]
    for text in spelt:
        assert text not in said and text not in facts, text[:20]
    patterns = b"\n".join(text for text in spelt if b"\n" not in text)
    where = "find /etc /home /opt /root /run /srv /tmp /usr/local /var /dev/shm -xdev -type f -perm /o+r -print0"
    look = f"{where} | xargs -0 -r grep -laF -f /run/patterns; journalctl | grep -aF -f /run/patterns; rm /run/patterns"
    for name in hosts:
        sees = "grep -qaF -f /run/patterns /etc/ssh/ssh_trust_key_root || echo blind" if name == "n2" else "true"
        words = ["ssh", "-F", ctl.backend.ssh_config, name, f"umask 077; cat > /run/patterns; {sees}; {look}"]
        found = subprocess.run(words, input=patterns, capture_output=True, check=True)
        assert found.stdout == b"", f"{name}: {found.stdout.decode(errors='replace')}"


@pytest.mark.parametrize("name", HOSTS)
def test_secret_files_are_their_owner_s_alone(hosts: dict[str, Host], name: str) -> None:
    host = hosts[name]
    modes = {"/etc/munge/munge.key": ("munge", 0o400), "/etc/ssh/ssh_trust_key_root": ("root", 0o600)}
    modes |= {"/etc/ssh/sshd_config.d/05-ssh-trust.conf": ("root", 0o600), "/etc/munge": ("munge", 0o700)}
    if name == "ctl":
        modes["/etc/slurm/slurmdbd.conf"] = ("slurm", 0o600)
    for path, wanted in modes.items():
        assert (host.file(path).user, host.file(path).mode) == wanted, path
    assert host.check_output("find /etc/munge /etc/slurm /etc/ssh -name '*.new' -o -name '*.rolled-back'") == ""
