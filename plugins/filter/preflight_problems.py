# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: everything that preflight refuses, over all hosts at once."""

from __future__ import annotations

DOCUMENTATION = r"""
name: preflight_problems
short_description: Everything that is wrong with the hosts of a run, as messages
description:
  - Judges what M(gpuops.cluster.host_probe), M(gpuops.cluster.gpu_facts) and the inventory say of all hosts.
  - Each message names the host, the value seen and the variable to set.
positional: _input
options:
  _input:
    description: >-
      One dictionary a host, with the keys C(host), C(address), C(answers), C(reason), C(probe),
      C(gpu_models), C(multi_node), and for GPU hosts C(devices) and C(versions)
      (C(driver), C(toolkit), C(toolkit_runs), C(wheels) by environment, and C(pci), lines of device numbers).
    type: list
    elements: dict
    required: true
  supported:
    description: Supported systems, C(id) and C(version) as in C(/etc/os-release).
    type: list
    elements: dict
    required: true
  python_minimum:
    description: Oldest Python of a managed host.
    type: str
    default: "3.9"
  free_mib:
    description: Least free space in MiB by mount point; a path without a mount point of its own counts to its parent.
    type: dict
    default: {}
  clock_offset_s:
    description: Largest distance in seconds between any two clocks.
    type: float
    default: 5.0
  groups:
    description: Names of the inventory's groups that have hosts.
    type: list
    elements: str
    default: []
  gpu_hosts:
    description: Hosts that carry GPUs; none at all is refused.
    type: list
    elements: str
    required: true
  partitions:
    description: Host names by Slurm partition, within which GPU models must be equal.
    type: dict
    default: {}
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Refuse with everything at once
  ansible.builtin.fail:
    msg: "{{ hosts | gpuops.cluster.preflight_problems(supported=[{'id': 'debian', 'version': '12'}]) | join('\n') }}"
"""

RETURN = r"""
_value:
  description: The messages, empty when nothing is wrong.
  type: list
  elements: str
"""

from collections import defaultdict
from difflib import get_close_matches
from typing import Any, Callable

from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility import Stack
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility import problems as compatibility_problems
from ansible_collections.gpuops.cluster.plugins.module_utils._compatibility_data import DISTRIBUTION_DRIVERS
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_gpus import read_pci

Host = dict[str, Any]
KNOWN_GROUPS = ("gpu_nodes", "slurm_controllers", "slurm_databases", "login_nodes", "monitoring_servers")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _no_answer(host: Host) -> list[str]:
    reason = host.get("reason") or "no reason given"
    return [f"{host['host']}: does not answer ({reason}); check ansible_host and ansible_user"]


def _system(host: Host, supported: list[dict[str, str]]) -> list[str]:
    seen = host["probe"]["os"]
    if any(seen == {"id": s["id"], "version": str(s["version"])} for s in supported):
        return []
    names = ", ".join(f"{s['id']} {s['version']}" for s in supported)
    return [f"{host['host']}: runs {seen['id']} {seen['version']}; supported are {names} (preflight_supported_systems)"]


def _python(host: Host, minimum: str) -> list[str]:
    seen = host["probe"]["python"]
    if seen is None:
        return [f"{host['host']}: has no Python; install python3, or set ansible_python_interpreter to where it is"]
    if _version(seen) < _version(minimum):
        return [f"{host['host']}: Python is {seen}, at least {minimum} is needed; set ansible_python_interpreter"]
    return []


def _disk(host: Host, wanted: dict[str, int]) -> list[str]:
    free: dict[str, int] = host["probe"]["free_mib"]
    messages = []
    for path, minimum in wanted.items():
        mount = path if path in free else "/"
        if mount in free and free[mount] < minimum:
            messages.append(
                f"{host['host']}: {free[mount]} MiB free on {mount}, {minimum} wanted for {path} (preflight_free_mib)"
            )
    return messages


def _names(host: Host) -> list[str]:
    """Names that do not resolve, or resolve to loopback, where several nodes must reach each other by name."""
    if not host.get("multi_node"):
        return []
    messages = []
    for name, addresses in host["probe"]["resolves"].items():
        if not addresses:
            messages.append(f"{host['host']}: cannot resolve {name}; add it to DNS, or to host_tuning_hosts")
        elif all(a.startswith("127.") or a == "::1" for a in addresses):
            messages.append(
                f"{host['host']}: resolves {name} to {addresses[0]}, which no other node can reach; correct /etc/hosts"
            )
    return messages


def _doubles(hosts: list[Host], what: str, value: Callable[[Host], str | None], advice: str) -> list[str]:
    owners: dict[str, list[str]] = defaultdict(list)
    for host in hosts:
        key = value(host)
        if key:
            owners[key].append(host["host"])
    return [
        f"{', '.join(names)}: have the same {what} {key}; {advice}" for key, names in owners.items() if len(names) > 1
    ]


def _clocks(hosts: list[Host], limit: float) -> list[str]:
    """Clocks are compared with their median, the control node's included, so that one wrong clock is named alone."""
    known = [h for h in hosts if h["probe"]["clock_offset_s"] is not None]
    if len(known) < 2:
        return []
    offsets = sorted([0.0, *(h["probe"]["clock_offset_s"] for h in known)])
    middle = offsets[len(offsets) // 2]
    messages = []
    for host in known:
        away = host["probe"]["clock_offset_s"] - middle
        if abs(away) - host["probe"]["clock_error_s"] > limit:
            messages.append(
                f"{host['host']}: its clock is {away:+.1f} s from the other hosts'; "
                f"start a time service, or raise preflight_clock_offset_s ({limit})"
            )
    return messages


def _groups(groups: list[str], gpu_hosts: list[str]) -> list[str]:
    """Groups that are missing, or misspelt so that a whole part of the site would silently not happen."""
    messages = []
    for known in KNOWN_GROUPS:
        for close in get_close_matches(known, set(groups) - set(KNOWN_GROUPS), n=1, cutoff=0.85):
            if known not in groups:
                messages.append(f"the inventory has a group {close}; rename it if {known} is meant")
    if not gpu_hosts:
        seen = ", ".join(sorted(set(groups) - {"all", "ungrouped"})) or "none"
        messages.append(
            "the inventory has no GPU hosts: group gpu_nodes is missing or empty (preflight_gpu_hosts); "
            f"groups seen: {seen}"
        )
    return messages


def _gpu_models(hosts: list[Host], partitions: dict[str, list[str]]) -> list[str]:
    models = {h["host"]: ", ".join(sorted(set(h["gpu_models"]))) for h in hosts if h.get("gpu_models")}
    messages = []
    for partition, names in partitions.items():
        seen: dict[str, list[str]] = defaultdict(list)
        for name in names:
            if name in models:
                seen[models[name]].append(name)
        if len(seen) > 1:
            parts = "; ".join(f"{model}: {', '.join(who)}" for model, who in sorted(seen.items()))
            messages.append(
                f"partition {partition} mixes GPU models ({parts}); "
                "split it in slurm_partitions, or set preflight_mixed_gpus: true"
            )
    return messages


def _versions(hosts: list[Host]) -> list[str]:
    """Driver, CUDA, PyTorch and GPUs that do not go together; hosts with the same problem share a message."""
    owners: dict[str, list[str]] = defaultdict(list)
    for host in hosts:
        versions = host.get("versions")
        if not versions:
            continue
        system = host["probe"]["os"]
        driver = versions["driver"] or DISTRIBUTION_DRIVERS.get(f"{system['id']} {system['version']}", "")
        devices = host.get("devices") or [{"pci_device": gpu} for gpu in read_pci(versions.get("pci") or []).gpus]
        stack = Stack(driver=str(driver), toolkit=str(versions["toolkit"] or ""))
        found = compatibility_problems(stack, devices, versions.get("toolkit_runs", True))
        for wheel in versions.get("wheels", {}).values():
            found += compatibility_problems(Stack(driver=str(driver), **wheel), devices)
        for sentence in dict.fromkeys(found):
            owners[sentence].append(host["host"])
    return [f"{', '.join(names)}: {sentence}" for sentence, names in owners.items()]


def preflight_problems(
    hosts: list[Host],
    supported: list[dict[str, str]],
    python_minimum: str = "3.9",
    free_mib: dict[str, int] | None = None,
    clock_offset_s: float = 5.0,
    groups: list[str] | None = None,
    gpu_hosts: list[str] | None = None,
    partitions: dict[str, list[str]] | None = None,
) -> list[str]:
    """All messages: groups, hosts that do not answer, what is wrong with each other host, what is between hosts."""
    up = [h for h in hosts if h["answers"] and h.get("probe")]
    messages = _groups(groups or [], gpu_hosts or [])
    messages += [m for h in hosts if h not in up for m in _no_answer(h)]
    for host in up:
        messages += (
            _system(host, supported) + _python(host, python_minimum) + _disk(host, free_mib or {}) + _names(host)
        )
    messages += _doubles(hosts, "address", lambda h: h.get("address"), "correct ansible_host")
    messages += _doubles(up, "host name", lambda h: h["probe"]["hostname"], "give each host its own with hostnamectl")
    messages += _clocks(up, clock_offset_s)
    messages += _gpu_models(up, partitions or {})
    messages += _versions(up)
    return messages


class FilterModule:
    """The filter, under its name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"preflight_problems": preflight_problems}
