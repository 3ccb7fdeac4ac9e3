# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of the lab named `$GPUOPS_LAB_NAME` (default: lab), as `./run lab up` left it.

Called by inventories/lab/hosts.sh. Without such a lab it says so and fails; with GPUOPS_LAB_MAY_BE_DOWN set, as in
Molecule's create and destroy steps, the inventory is empty instead.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def inventory(cache: Path, name: str) -> dict[str, Any]:
    """What `ansible-inventory` reads; raises OSError or ValueError where there is no such lab."""
    directory = cache / "labs" / name
    state = json.loads((directory / "state.json").read_text())
    if not state["complete"]:
        raise ValueError("half-built")
    options = (
        f"-o UserKnownHostsFile={directory}/known_hosts -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes"
    )
    hostvars = {
        host: {
            "ansible_host": address,
            "ansible_port": state.get("ports", {}).get(host, 22),
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(directory / "id_ed25519"),
            "ansible_ssh_common_args": f"{options} -o IdentitiesOnly=yes",
        }
        for host, address in state["hosts"].items()
    }
    controllers = [host for host in hostvars if host == "ctl"]  # labs of virtual machines have none
    everywhere = {"lab_name": name, "lab_artifacts": str(cache / "artifacts"), "lab_suite": state["options"]["suite"]}
    return {
        "_meta": {"hostvars": hostvars},
        "all": {"vars": everywhere},
        "gpu_nodes": {"hosts": [host for host in hostvars if host != "ctl"]},
        "slurm_controllers": {"hosts": controllers},
        "slurm_databases": {"hosts": controllers},
        "login_nodes": {"hosts": []},
        "monitoring_servers": {"hosts": controllers},
    }


def main() -> int:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("GPUOPS_CACHE") or Path(base) / "gpuops").absolute()
    name = os.environ.get("GPUOPS_LAB_NAME") or "lab"
    try:
        print(json.dumps(inventory(cache, name), indent=2))
    except (OSError, ValueError, KeyError):
        if os.environ.get("GPUOPS_LAB_MAY_BE_DOWN"):
            print(json.dumps({"_meta": {"hostvars": {}}}))
            return 0
        print(f"lab {name} is not up ({cache}/labs/{name}); type: ./run lab up --name {name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
