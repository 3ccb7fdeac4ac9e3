# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the whole site costs on labs of several sizes: the first run, the run that changes nothing, each node more.

    ./run bench [--sizes 1,4,8] [--join] [--shell] [--mitogen DIRECTORY]

For each size: seconds, the control node's CPU seconds and peak memory, tasks and ssh commands a host; the floor, which
is a play of `setup` and `ping` on the same hosts; the ten tasks that took most time; with --join what add_nodes.yml
needs for one node more, and what it changes on the others; and with --shell what a plain script needs that installs the
same packages by one ssh to each host. Prints figures and ratios. Asserts nothing about seconds: machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.lab.inventory import inventory

PROJECT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("GPUOPS_CACHE") or Path.home() / ".cache/gpuops")
INVENTORY = PROJECT / "inventories/lab"
PROFILE = {
    "ANSIBLE_CALLBACKS_ENABLED": "gpuops.cluster.summary,ansible.posix.profile_tasks",
    "PROFILE_TASKS_SUMMARY_ONLY": "true",
    "PROFILE_TASKS_TASK_OUTPUT_LIMIT": "10",
}
FLOOR = [{"hosts": "all", "gather_facts": False, "tasks": [{"setup": None}, {"ping": None}]}]
COUNTER = '#!/bin/sh\necho >>"$GPUOPS_BENCH_SSH"\nexec ssh "$@"\n'
# Of each host, on one line: what apt-get was told to install by whom, packages it brought along included.
INSTALLED = "sed -n 's/.* status installed \\([^ :]*\\).*/\\1/p' /var/log/dpkg.log | sort -u | tr '\\n' ' '"


@dataclass
class Run:
    """One run of a command on the control node."""

    seconds: float
    cpu: float
    peak_mib: float  # of the largest process
    tasks: int  # of the host that had most
    changed: dict[str, int]  # by host
    ssh: float  # commands a host
    out: str

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.1f} s, control node {self.cpu:6.1f} CPU s and {self.peak_mib:4.0f} MiB, "
            f"at most {self.tasks} tasks and {self.ssh:.0f} ssh commands a host, {sum(self.changed.values())} changed"
        )


class Lab:
    """A lab of a controller and nodes, of which the last may stay out of the cluster until it joins."""

    def __init__(self, nodes: int, strategy: dict[str, str], *, spare: bool = False) -> None:
        self.nodes = nodes
        self.spare = f"n{nodes + 1}" if spare else ""
        self.inventory = INVENTORY
        self.room = Path(tempfile.mkdtemp(prefix="gpuops-bench-"))
        self.name = f"bench{nodes}"
        self.environment = {**os.environ, **strategy, "GPUOPS_LAB_NAME": self.name, "ANSIBLE_NOCOLOR": "1"}
        self.environment["ANSIBLE_CONFIG"] = str(PROJECT / "ansible.cfg")

    def lab(self, *words: str) -> None:
        subprocess.run(["./run", "lab", *words, "--name", self.name], cwd=PROJECT, check=True, capture_output=True)

    def up(self) -> None:
        self.lab("up", "--nodes", str(self.nodes + bool(self.spare)), "--gpus", "h100x4", "--artifacts")
        if self.spare:
            self.inventory = self.without(self.spare)

    def without(self, host: str) -> Path:
        """The lab's inventory as a directory of its own, in which one host is not there."""
        listed = inventory(CACHE, self.name)
        variables = listed.pop("_meta")["hostvars"]
        everywhere = listed.pop("all")["vars"]
        groups = {
            group: {"hosts": {name: variables[name] for name in members["hosts"] if name != host}}
            for group, members in listed.items()
        }
        directory = self.room / "inventories/bench"
        directory.mkdir(parents=True)
        (directory / "group_vars").symlink_to(INVENTORY / "group_vars")
        (directory / "hosts.json").write_text(json.dumps({"all": {"vars": everywhere, "children": groups}}))
        return directory

    def down(self) -> None:
        self.lab("down")
        shutil.rmtree(self.room)

    def run(self, *words: str, **more: str) -> Run:
        with tempfile.TemporaryDirectory() as directory:
            ssh, count = Path(directory, "ssh"), Path(directory, "count")
            ssh.write_text(COUNTER, encoding="utf-8")
            ssh.chmod(0o755)
            counting = {"ANSIBLE_SSH_EXECUTABLE": str(ssh), "GPUOPS_BENCH_SSH": str(count)}
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            done = subprocess.run(
                words,
                cwd=PROJECT,
                env={**self.environment, **counting, **more},
                capture_output=True,
                text=True,
                check=False,
            )
            seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
            commands = len(count.read_text(encoding="utf-8").splitlines()) if count.exists() else 0
        recap = re.findall(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+).*?skipped=(\d+)", done.stdout, re.MULTILINE)
        return Run(
            seconds=seconds,
            cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            peak_mib=after.ru_maxrss / 1024,
            tasks=max((int(ok) + int(skipped) for _host, ok, _changed, skipped in recap), default=0),
            changed={host: int(changed) for host, _ok, changed, _skipped in recap},
            ssh=commands / (self.nodes + 1),
            out=done.stdout,
        )

    def play(self, *words: str, **more: str) -> Run:
        return self.run("ansible-playbook", "-i", str(self.inventory), *words, **more)

    def packages(self) -> dict[str, str]:
        """What was installed on each host since it came up."""
        asked = self.run("ansible", "-i", str(self.inventory), "all", "-m", "raw", "-a", INSTALLED)
        parts = re.split(r"^(\S+) \| \w+.*>>$", asked.out, flags=re.MULTILINE)[1:]
        return {host: " ".join(text.split()) for host, text in zip(parts[::2], parts[1::2])}


def floor(lab: Lab) -> Run:
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as book:
        book.write(json.dumps(FLOOR))
        book.flush()
        return lab.play(book.name)


# What comes from repositories that a role brings along first is left to the roles.
INSTALL = """apt-get -qq update && apt-cache pkgnames | sort >/run/known &&
printf '%s\\n' $1 | sort | comm -12 - /run/known |
DEBIAN_FRONTEND=noninteractive xargs apt-get -qq install -y --no-install-recommends >/dev/null 2>&1"""


def shell(nodes: int, packages: dict[str, str]) -> float:
    """Seconds until one ssh to each fresh host, side by side, has installed the same packages."""
    lab = Lab(nodes, {})
    lab.up()
    try:
        config = CACHE / "labs" / lab.name / "ssh_config"
        began = time.monotonic()
        sessions = [
            subprocess.Popen(
                ["ssh", "-F", str(config), host, f"sh -c {shlex.quote(INSTALL)} install {shlex.quote(names)}"],
                stdin=subprocess.DEVNULL,
            )
            for host, names in packages.items()
        ]
        codes = [session.wait() for session in sessions]
        return time.monotonic() - began if not any(codes) else float("nan")
    finally:
        lab.down()


def join(lab: Lab) -> Run:
    """The node that stayed out joins. Prints what that changed on the others, and which."""
    lab.inventory = INVENTORY
    new = lab.play("playbooks/add_nodes.yml", "-e", f"add_nodes={lab.spare}")
    others = {host: count for host, count in new.changed.items() if host != lab.spare and count}
    print(f"  one more node {new}; on the others: {others or 'nothing'}", flush=True)
    return new


def measure(nodes: int, strategy: dict[str, str], *, spare: bool, compare: bool) -> dict[str, Run]:
    """Prints the figures of one size, and returns the runs: first, nothing, and join where a node was spare."""
    lab = Lab(nodes, strategy, spare=spare)
    print(f"\n{nodes} nodes and a controller", flush=True)
    lab.up()
    try:
        first = lab.play("site.yml")
        print(f"  first run     {first}", flush=True)
        again = lab.play("site.yml")
        print(f"  nothing to do {again}", flush=True)
        low = floor(lab)
        print(f"  setup + ping  {low}", flush=True)
        print("  where its time goes, the ten longest tasks of a run like that:")
        for line in re.findall(r"^\S.* -+ \d[\d.]*s$", lab.play("site.yml", **PROFILE).out, re.MULTILINE):
            print(f"    {re.sub(' -+ ', '  ', line)}", flush=True)
        ratio = again.cpu / low.cpu
        print(f"  nothing to do / floor: {ratio:.1f} of CPU, {again.seconds / low.seconds:.1f} of time", flush=True)
        packages = lab.packages()
        runs = {"first": first, "nothing": again}
        if spare:
            runs["join"] = join(lab)
    finally:
        lab.down()
    if compare:
        script = shell(nodes, packages)
        print(f"  the same packages by a shell script {script:.1f} s: first run {first.seconds / script:.2f} times")
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,4,8", help="numbers of nodes (1,4,8)")
    parser.add_argument("--join", action="store_true", help="also one node more, by add_nodes.yml")
    parser.add_argument("--shell", action="store_true", help="also a shell script that installs the same packages")
    parser.add_argument("--mitogen", type=Path, help="directory ansible_mitogen of the package mitogen, to use it")
    options = parser.parse_args()
    strategy = {}
    if options.mitogen:
        strategy = {
            "ANSIBLE_STRATEGY": "mitogen_linear",
            "ANSIBLE_STRATEGY_PLUGINS": str(options.mitogen / "plugins/strategy"),
        }
    sizes = sorted(int(size) for size in options.sizes.split(","))
    runs = {size: measure(size, strategy, spare=options.join, compare=options.shell) for size in sizes}
    print()
    for small, large in zip(sizes, sizes[1:]):
        for which, name in (("first", "first run"), ("nothing", "nothing to do")):
            growth = (runs[large][which].seconds - runs[small][which].seconds) / (large - small)
            cpu = (runs[large][which].cpu - runs[small][which].cpu) / (large - small)
            print(f"from {small} to {large} nodes, {name}: {growth:.2f} s and {cpu:.2f} CPU s for each more")
    if options.join and 1 in runs:
        for size in sizes[1:]:
            ratio = runs[size]["join"].seconds / runs[1]["first"].seconds
            print(f"one more node at {size} / first run of one node: {ratio:.2f} of time")


if __name__ == "__main__":
    main()
