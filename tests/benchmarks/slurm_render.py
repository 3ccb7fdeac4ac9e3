# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the controller's configuration takes for many nodes: merging what a run saw, rendering, comparing.

    python tests/benchmarks/slurm_render.py [nodes…]

Nodes alternate between three kinds of server, as where machines were bought in turns. Every node is seen anew and
one in a hundred has changed: the worst case, a run without --limit.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".ansible/collections"))

from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_state as states
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_topology as topology

KINDS = [("h100", 8, 2045952), ("a100", 8, 1021952), ("l40s", 4, 510976)]


def host(index: int) -> dict[str, Any]:
    kind, gpus, memory = KINDS[index % len(KINDS)]
    gres = [
        {"type": kind, "file": f"/dev/nvidia{gpu}", "cores": "0-55" if gpu < gpus // 2 else "56-111", "links": ""}
        for gpu in range(gpus)
    ]
    node: dict[str, Any] = {"name": f"gpu{index:05d}", "cpus": 112, "sockets": 2, "cores": 56, "threads": 1}
    node["real_memory"] = memory
    node["gres"] = gres
    return {"node": node, "address": "", "options": {}, "version": "24.11.5", "switch": f"leaf{index // 32}"}


def configure(count: int, own_lines: bool = False) -> float:
    """Seconds for one run over a cluster of this size that is known already; `own_lines`: each node has an address."""
    names = [f"gpu{index:05d}" for index in range(count)]
    hosts = {name: host(index) for index, name in enumerate(names)}
    for index, one in enumerate(hosts.values() if own_lines else []):
        one["address"] = f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}"
    known = states.merge(states.empty(), hosts, controllers=[], databases=[], nodes=names)[0]
    seen = copy.deepcopy(hosts)
    for name in names[::100]:
        seen[name]["node"]["real_memory"] -= 1024
    partitions = [{"name": "main", "default": True}, {"name": "half", "nodes": names[::2]}]
    began = time.process_time()
    state = states.merge(known, seen, controllers=[], databases=[], nodes=names)[0]
    params = {"options": {}, "partitions": partitions, "cgroup": {}, "topology": {"kind": "tree"}}
    text = topology.files(params, state, "24.11.5")["slurm.conf"]
    keys = states.changed_keys(f"A=1\n{text}", text)
    states.mark(known, state, keys=keys, cgroup_changed=False, version="22.05.8", now=1)
    json.dumps(state, indent=1)
    return time.process_time() - began


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [1000, 2000, 5000, 10000]
    print(f"{'nodes':>6} {'seconds':>8} {'a node, µs':>11} {'with addresses':>15}")
    for count in counts:
        seconds, addressed = configure(count), configure(count, own_lines=True)
        print(f"{count:>6} {seconds:>8.2f} {seconds / count * 1e6:>11.0f} {addressed:>15.2f}")


if __name__ == "__main__":
    main()
