# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of slurmctld on its own host. Private to the collection."""

from __future__ import annotations

import os
import re

from ansible.module_utils.basic import AnsibleModule

SBIN = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"]


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""


def installed(module: AnsibleModule) -> tuple[str, str]:
    program = module.get_bin_path("slurmctld", opt_dirs=SBIN) or ""
    match = re.search(r"\d+\.\d+\S*", module.run_command([program, "-V"])[1]) if program else None
    return program, match.group(0) if match else ""


def running(module: AnsibleModule) -> tuple[int, bool]:
    """Epoch of slurmctld's start (0 when it does not run) and whether it holds the file that lies on disk."""
    systemctl = module.get_bin_path("systemctl")
    if not systemctl:
        return 0, True
    pid = module.run_command([systemctl, "show", "-p", "MainPID", "--value", "slurmctld"])[1].strip()
    stat, boot = read(f"/proc/{pid}/stat"), re.search(r"^btime (\d+)$", read("/proc/stat"), re.MULTILINE)
    if not stat or not boot:
        return 0, True
    ticks = int(stat.rpartition(")")[2].split()[19])
    hash_line = re.search(r"^HASH_VAL\s*=\s*(.+)$", module.run_command(["scontrol", "show", "config"])[1], re.MULTILINE)
    same = hash_line is None or hash_line.group(1).strip() == "Match"
    return int(boot.group(1)) + ticks // os.sysconf("SC_CLK_TCK"), same


def jobs(module: AnsibleModule, nodes: list[str]) -> list[str]:
    """Ids of the jobs on these nodes, or of all when none is named."""
    code, out, _err = module.run_command(["squeue", "-h", "-o", "%i", *(["-w", ",".join(nodes)] if nodes else [])])
    return out.split() if code == 0 else []
