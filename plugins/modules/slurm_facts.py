#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: what Slurm needs to know of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_facts
short_description: What Slurm needs to know of a host
description:
  - Returns versions of the installed daemons, the host as a node (topology, memory, typed GPUs), the mounted cgroup
    hierarchy and the user that Slurm runs as. Works before anything is installed; the topology is then a forecast
    from C(lscpu).
  - GPUs come from M(gpuops.cluster.gpu_facts), whose result is passed in.
version_added: 0.1.0
author:
  - The gpuops.cluster contributors (@gpuops)
attributes:
  check_mode:
    description: Only reads.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  gpu:
    description: The fact C(ansible_facts.gpu).
    type: dict
    default: {}
  gpu_types:
    description: Types by product name where the derived one is not wanted.
    type: dict
    default: {}
  memory_reserve_percent:
    description: Share of the memory that is not given to jobs.
    type: float
    default: 2
  packages:
    description: Packages that this host's part needs.
    type: list
    elements: str
    default: []
  control_time:
    description: Time of the control node when it sends the task, in seconds since 1970. From it comes C(clock_offset).
    type: float
  state_directory:
    description: slurmctld's directory, whose file system and owner are named in C(state).
    type: path
  spool_directory:
    description: slurmd's directory, whose file system is named in C(spool).
    type: path
  texts:
    description: Files whose text is returned, so that no task is needed for those that are as they should be.
    type: list
    elements: path
    default: []
"""

EXAMPLES = r"""
- name: See this host as Slurm does
  gpuops.cluster.slurm_facts:
    gpu: "{{ ansible_facts.gpu }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    slurm:
      description: Everything below one key.
      returned: always
      type: dict
      sample:
        versions: {slurmd: 24.11.5}
        cgroup: {hierarchy: v2, writable: true}
        user: {uid: 64030, gid: 64030}
        munge_key: 2fe1… (its sha256, empty where there is none)
        missing_packages: []
        package_index: true
        slurmd_started: 1764471600
        texts: {/etc/logrotate.d/slurmd: Text of the file (empty where there is none)}
        running: [munge, slurmd]
        clock_offset: 0.4
        switches: {eth0: leaf1}
        state: {filesystem: nfs4, options: "rw,hard", owner: slurm}
        spool: {filesystem: ext4, options: "rw,relatime", owner: slurm}
        node:
          name: n1
          cpus: 112
          sockets: 2
          cores: 56
          threads: 1
          real_memory: 2045952
          gres: [{type: h100, file: /dev/nvidia0, cores: 0-55, links: ""}]
          gpus_complete: true
          note: ""
        problems: []
"""

import contextlib
import glob
import hashlib
import os
import pwd
import re
import socket
import time
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_host as host
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_node as node_model
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_topology as network
from ansible_collections.gpuops.cluster.plugins.module_utils._host_questions import read

DAEMONS = ("slurmctld", "slurmdbd", "slurmd")
UNITS = ("munge", "mariadb", *DAEMONS)
UID = 64030  # Debian's and Ubuntu's fixed number of the user slurm


def sha256(path: str) -> str:
    try:
        with open(path, "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return ""


def missing(module: AnsibleModule) -> list[str]:
    """Packages that are not wholly installed."""
    wanted = module.params["packages"]
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *wanted]
    out = module.run_command(query)[1] if wanted else ""
    there = {line.split()[0] for line in out.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in there]


def versions(module: AnsibleModule) -> dict[str, str]:
    found = {}
    for daemon in DAEMONS:
        path = module.get_bin_path(daemon, opt_dirs=["/usr/sbin", "/usr/local/sbin"])
        if path:
            match = re.search(r"\d+\.\d+\S*", module.run_command([path, "-V"])[1])
            found[daemon] = match.group(0) if match else "0"
    return found


def user(problems: list[str]) -> Optional[dict[str, int]]:
    try:
        entry = pwd.getpwnam("slurm")
        return {"uid": entry.pw_uid, "gid": entry.pw_gid}
    except KeyError:
        pass
    with contextlib.suppress(KeyError):
        problems.append(f"uid {UID}, which the packages give to the user slurm, belongs to {pwd.getpwuid(UID).pw_name}")
    return None


def started(daemon: str) -> int:
    """Epoch at which the daemon started, 0 when it does not run."""
    boot = re.search(r"^btime (\d+)$", read("/proc/stat"), re.MULTILINE)
    times = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        text = read(path)
        name, _paren, rest = text.partition("(")[2].rpartition(")")
        if name == daemon and boot and rest.split()[1] == "1":
            times.append(int(boot.group(1)) + int(rest.split()[19]) // os.sysconf("SC_CLK_TCK"))
    return max(times, default=0)


def running(module: AnsibleModule) -> list[str]:
    """Services that are active and start at boot."""
    systemctl = module.get_bin_path("systemctl")
    if not systemctl:
        return []
    properties = "--property=Id,ActiveState,UnitFileState"
    blocks = module.run_command([systemctl, "show", properties, *UNITS])[1].split("\n\n")
    states = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
    good = {s.get("Id") for s in states if s.get("ActiveState") == "active" and s.get("UnitFileState") == "enabled"}
    return [unit for unit in UNITS if f"{unit}.service" in good]


def topology(module: AnsibleModule, problems: list[str]) -> dict[str, int]:
    slurmd = module.get_bin_path("slurmd", opt_dirs=["/usr/sbin", "/usr/local/sbin"])
    try:
        if slurmd:
            code, out, _err = module.run_command([slurmd, "-C"])
            # 24.11 looks at GPUs on the way and dies where the driver is only half there. lscpu still answers.
            if code == 0:
                return node_model.parse_slurmd(out)
        lscpu = module.run_command(["lscpu", "-p=CPU,CORE,SOCKET"])[1]
        return node_model.parse_lscpu(lscpu, read("/proc/meminfo"))
    except ValueError as error:
        problems.append(str(error))
        return {}


def neighbours(module: AnsibleModule) -> dict[str, str]:
    """Switches that lldpd has heard of, by interface."""
    lldpctl = module.get_bin_path("lldpctl")
    return network.neighbours(module.run_command([lldpctl, "-f", "json0"])[1]) if lldpctl else {}


def describe(module: AnsibleModule, problems: list[str]) -> dict[str, Any]:
    gpu, shape = module.params["gpu"], topology(module, problems)
    entries = node_model.node_gres(
        gpu,
        types=module.params["gpu_types"],
        placement=host.placement(),
        cores=shape.get("sockets", 0) * shape.get("cores", 0),
        mig_files=node_model.parse_mig_minors(read("/proc/driver/nvidia-caps/mig-minors")),
    )
    complete, note = node_model.gpu_notes(gpu, entries)
    memory = node_model.usable_memory(shape.pop("memory_mib", 0), module.params["memory_reserve_percent"])
    shape.pop("boards", None)
    name = socket.gethostname().split(".")[0]
    return {"name": name, **shape, "real_memory": memory, "gres": entries, "gpus_complete": complete, "note": note}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gpu": {"type": "dict", "default": {}},
            "gpu_types": {"type": "dict", "default": {}},
            "memory_reserve_percent": {"type": "float", "default": 2},
            "packages": {"type": "list", "elements": "str", "default": []},
            "control_time": {"type": "float"},
            "state_directory": {"type": "path"},
            "spool_directory": {"type": "path"},
            "texts": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    sent = module.params["control_time"]
    state, spool = module.params["state_directory"], module.params["spool_directory"]
    offset = round(time.time() - sent, 1) if sent else 0.0
    problems: list[str] = []
    facts = {
        "versions": versions(module),
        "cgroup": host.cgroup(),
        "user": user(problems),
        "munge_key": sha256("/etc/munge/munge.key"),
        "missing_packages": missing(module),
        "package_index": bool(glob.glob("/var/lib/apt/lists/*_Packages*")),
        "slurmd_started": started("slurmd"),
        "texts": {path: read(path) for path in module.params["texts"]},
        "running": running(module),
        "clock_offset": offset,
        "switches": neighbours(module),
        "state": host.directory(os.path.realpath(state)) if state else {},
        "spool": host.directory(os.path.realpath(spool)) if spool else {},
        "node": describe(module, problems),
        "problems": problems,
    }
    module.exit_json(changed=False, ansible_facts={"slurm": facts})


if __name__ == "__main__":
    main()
