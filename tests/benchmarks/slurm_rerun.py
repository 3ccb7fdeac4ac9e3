# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a run takes that changes nothing, on a lab: our role's, or that of a role that somebody brings along.

    ./run lab up --name ours;  GPUOPS_LAB_NAME=ours python tests/benchmarks/slurm_rerun.py
    ./run lab up --name peer;  GPUOPS_LAB_NAME=peer python tests/benchmarks/slurm_rerun.py --peer PATH

Each role wants a lab of its own. PATH is the role galaxyproject.slurm, which gets the least that makes a controller and
nodes: no accounting, no GPUs, no proof. `setup` and `ping` of all hosts are measured in between, since machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
SCENARIO = PROJECT / "molecule/slurm"
NODE = {"CPUs": 1, "State": "UNKNOWN"}


def peer_play(role: Path) -> list[dict[str, Any]]:
    """A controller and its nodes, by the peer's own variables."""
    nodes = "{{ groups['gpu_nodes'] | map('community.general.dict_kv', 'name') | map('combine', node) }}"
    variables = {
        "node": NODE,
        "slurm_munge_key": "{{ playbook_dir }}/munge.key",
        "slurm_nodes": nodes,
        "slurm_partitions": [{"name": "main", "Nodes": "ALL", "Default": "YES"}],
        "slurm_roles": "{{ ['controller'] if inventory_hostname in groups['slurm_controllers'] else ['exec'] }}",
        "slurm_config": {
            "SlurmctldHost": "{{ groups['slurm_controllers'] | first }}",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        },
    }
    return [{"hosts": "all", "gather_facts": True, "vars": variables, "roles": [{"role": str(role)}]}]


def timed(*words: str) -> tuple[float, str]:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment["ANSIBLE_INJECT_FACT_VARS"] = "true"
    began = time.monotonic()
    done = subprocess.run(words, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - began, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="path of the other role")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    inventory = ("-i", "inventories/lab")
    with tempfile.TemporaryDirectory() as directory:
        if arguments.peer:
            book = Path(directory) / "peer.yml"
            book.write_text(json.dumps(peer_play(arguments.peer.resolve())), encoding="utf-8")
            (Path(directory) / "munge.key").write_bytes(os.urandom(1024))
            timed("ansible", *inventory, "all", "-m", "apt", "-a", "update_cache=true")
        else:
            book = SCENARIO / "converge.yml"
            timed("ansible-playbook", *inventory, str(SCENARIO / "prepare.yml"))
        first, _out = timed("ansible-playbook", *inventory, str(book))
        print(f"first run {first:.1f} s", flush=True)
        runs, floor = [], []
        for _run in range(arguments.runs):
            setup, _out = timed("ansible", *inventory, "all", "-m", "setup")
            ping, _out = timed("ansible", *inventory, "all", "-m", "ping")
            seconds, out = timed("ansible-playbook", *inventory, str(book))
            changed = sum(int(number) for number in re.findall(r"changed=(\d+)", out))
            tasks = max(int(number) for number in re.findall(r": ok=(\d+)", out))
            runs.append(seconds)
            floor.append(setup + ping)
            said = f"at most {tasks} tasks a host, {changed} changed; setup + ping {floor[-1]:.1f} s"
            print(f"re-run {seconds:.1f} s, {said}", flush=True)
    ratio = statistics.median(runs) / statistics.median(floor)
    print(f"median {statistics.median(runs):.1f} s, {ratio:.1f} times setup + ping")


if __name__ == "__main__":
    main()
