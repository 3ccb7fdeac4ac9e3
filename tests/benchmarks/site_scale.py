# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the whole site costs on labs of several sizes: the first run, the run that changes nothing, each node more.

    ./run bench [--sizes 2,4,8] [--shell] [--mitogen DIRECTORY]

For each size: seconds, the control node's CPU seconds and peak memory, tasks and ssh commands a host; the floor, which
is a play of `setup` and `ping` on the same hosts; the ten tasks that took most time; and with --shell what a plain
script needs that installs the same packages by one ssh to each host. Prints figures and ratios. Asserts nothing about
seconds: machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INVENTORY = ("-i", "inventories/lab")
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
    changed: int
    ssh: float  # commands a host
    out: str

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.1f} s, control node {self.cpu:6.1f} CPU s and {self.peak_mib:4.0f} MiB, "
            f"at most {self.tasks} tasks and {self.ssh:.0f} ssh commands a host, {self.changed} changed"
        )


class Lab:
    def __init__(self, nodes: int, strategy: dict[str, str]) -> None:
        self.nodes = nodes
        self.name = f"bench{nodes}"
        self.environment = {**os.environ, **strategy, "GPUOPS_LAB_NAME": self.name, "ANSIBLE_NOCOLOR": "1"}
        self.environment["ANSIBLE_CONFIG"] = str(PROJECT / "ansible.cfg")

    def lab(self, *words: str) -> None:
        subprocess.run(["./run", "lab", *words, "--name", self.name], cwd=PROJECT, check=True, capture_output=True)

    def up(self) -> None:
        self.lab("up", "--nodes", str(self.nodes), "--gpus", "h100x4", "--artifacts")

    def down(self) -> None:
        self.lab("down")

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
        recap = re.findall(r": ok=(\d+)\s+changed=(\d+).*?skipped=(\d+)", done.stdout)
        return Run(
            seconds=seconds,
            cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            peak_mib=after.ru_maxrss / 1024,
            tasks=max((int(ok) + int(skipped) for ok, _changed, skipped in recap), default=0),
            changed=sum(int(changed) for _ok, changed, _skipped in recap),
            ssh=commands / (self.nodes + 1),
            out=done.stdout,
        )

    def play(self, *words: str, **more: str) -> Run:
        return self.run("ansible-playbook", *INVENTORY, *words, **more)

    def packages(self) -> dict[str, str]:
        """What was installed on each host since it came up."""
        asked = self.run("ansible", *INVENTORY, "all", "-m", "raw", "-a", INSTALLED)
        parts = re.split(r"^(\S+) \| \w+.*>>$", asked.out, flags=re.MULTILINE)[1:]
        return {host: " ".join(text.split()) for host, text in zip(parts[::2], parts[1::2])}


def floor(lab: Lab) -> Run:
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as book:
        book.write(json.dumps(FLOOR))
        book.flush()
        return lab.play(book.name)


def shell(nodes: int, packages: dict[str, str]) -> float:
    """Seconds until one ssh to each fresh host, side by side, has installed the same packages."""
    lab = Lab(nodes, {})
    lab.up()
    try:
        cache = Path(os.environ.get("GPUOPS_CACHE", Path.home() / ".cache/gpuops"))
        config = cache / "labs" / lab.name / "ssh_config"
        began = time.monotonic()
        install = "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends"
        sessions = [
            subprocess.Popen(
                ["ssh", "-F", str(config), host, f"{install} {names} >/dev/null 2>&1"], stdin=subprocess.DEVNULL
            )
            for host, names in packages.items()
        ]
        codes = [session.wait() for session in sessions]
        return time.monotonic() - began if not any(codes) else float("nan")
    finally:
        lab.down()


def measure(nodes: int, strategy: dict[str, str], *, compare: bool) -> Run:
    """Prints the figures of one size, and returns the run that changed nothing."""
    lab = Lab(nodes, strategy)
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
    finally:
        lab.down()
    if compare:
        script = shell(nodes, packages)
        print(f"  the same packages by a shell script {script:.1f} s: first run {first.seconds / script:.2f} times")
    return again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2,4,8", help="numbers of nodes (2,4,8)")
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
    runs = {size: measure(size, strategy, compare=options.shell) for size in sizes}
    for small, large in zip(sizes, sizes[1:]):
        growth = (runs[large].seconds - runs[small].seconds) / (large - small)
        cpu = (runs[large].cpu - runs[small].cpu) / (large - small)
        print(f"\nfrom {small} to {large} nodes, nothing to do: {growth:.2f} s and {cpu:.2f} CPU s for each more")


if __name__ == "__main__":
    main()
