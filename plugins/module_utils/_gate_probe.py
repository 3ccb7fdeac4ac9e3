# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage 0: what only the job itself can know of a node, and what of it makes figures worthless."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

Blocked = list[dict[str, str]]  # {host, check, reason}; an empty host means all of them
# What is looked at, in this order: each group only where nothing of the one before blocks.
OF_FACTS = ("reachable", "gpu_facts", "gpu_count", "mig")
OF_HARDWARE = ("same_gpus", "same_product", "same_driver")
OF_JOB = ("job", "missing", "shm", "busy")
OF_RDMA = ("memlock", "acs", "gpudirect", "gid")
OF_SOFTWARE = ("same_binaries", "same_libmpi", "same_libnccl", "same_plugins", "same_nccl")
# Runs once on every node, inside the job. One line of key=value, separated by tabs.
PROBE = r"""
bin=$1
mkdir -p -m 700 /run/nccl-gate 2>/dev/null
digest() { cat /dev/null "$@" 2>/dev/null | sha256sum | cut -c1-16; }
needs() { ldd "$bin/all_reduce_perf" 2>/dev/null | awk -v lib="$1" 'index($1, lib) == 1 {print $3}'; }
# NCCL loads its plugins at run time: from the loader's folders, or from where a variable points to.
plugins() {
  {
    /sbin/ldconfig -p 2>/dev/null | awk '/libnccl-(net|tuner|profiler)[^ ]*\.so/ {print $NF}'
    printf '%s\n' "${LD_LIBRARY_PATH:-}" | tr ':' '\n' | while read -r folder; do
      [ -n "$folder" ] && ls "$folder"/libnccl-net*.so "$folder"/libnccl-tuner*.so 2>/dev/null
    done
    for file in "${NCCL_NET_PLUGIN:-}" "${NCCL_TUNER_PLUGIN:-}"; do [ -f "$file" ] && echo "$file"; done
  } | sort -u
}
settings() {
  said=$({
    env | grep '^NCCL_' | sort
    grep -hv '^ *\(#\|$\)' /etc/nccl.conf "${NCCL_CONF_FILE:-$HOME/.nccl.conf}"
  } 2>/dev/null | tr '\t' ' ' | paste -sd' ')
  if [ ${#said} -gt 400 ]; then printf %s "$said" | sha256sum | cut -c1-16; else printf '%s\n' "$said"; fi
}
# Somebody else's processes on the GPUs: figures beside them are worthless.
busy() {
  timeout 30 nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader 2>/dev/null |
    grep '^ *[0-9]' | grep -v nvidia-cuda-mps | tr '\t,' '  ' | head -n 3 | paste -sd';'
}
# Bits of PCIe access control that send traffic between devices up through the root complex; on bare metal only.
redirecting() {
  grep -q '^flags.* hypervisor' /proc/cpuinfo || [ -e /run/.containerenv ] || [ -e /.dockerenv ] && return
  command -v python3 >/dev/null || return
  python3 -c '
import glob
for folder in sorted(glob.glob("/sys/bus/pci/devices/*")):
    try:
        if not open(folder + "/class").read().startswith("0x0604"):
            continue
        config = open(folder + "/config", "rb").read()
    except OSError:
        continue
    at, seen = 0x100, set()
    while at + 8 <= len(config) and at not in seen and at:
        seen.add(at)
        head = int.from_bytes(config[at:at + 4], "little")
        if head & 0xFFFF == 0x000D and config[at + 6] & 0x1C:
            print(folder.rsplit("/", 1)[1])
        at = head >> 20
' 2>/dev/null | head -n 3 | paste -sd' '
}
# How NICs reach GPU memory: peer memory module, or dma-buf of the open kernel module.
direct() {
  if [ -e /sys/module/nvidia_peermem ] || [ -e /sys/module/nv_peer_mem ]; then echo peermem
  elif grep -q 'Open Kernel Module' /proc/driver/nvidia/version 2>/dev/null &&
    [ "$(printf '5.12\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 5.12 ]; then echo dmabuf
  else echo none; fi
}
# The address at which other nodes reach this one over the network that NCCL's sockets use.
address() {
  prefix=$(printf %s "${NCCL_SOCKET_IFNAME:-}" | tr -d '=' | cut -d, -f1)
  case $prefix in
    '' | ^*) ip -4 -o route get 203.0.113.1 2>/dev/null | grep -o 'src [0-9.]*' | cut -d' ' -f2 ;;
    *) ip -4 -o addr show scope global 2>/dev/null |
      awk -v p="$prefix" 'index($2, p) == 1 {sub("/.*", "", $4); print $4; exit}' ;;
  esac
}
tools=''
for tool in iperf3 ib_write_bw nvbandwidth; do command -v $tool >/dev/null && tools="$tools $tool"; done
more=$(printf 'acs=%s\tdirect=%s\taddress=%s\ttools=%s\tbusy=%s' \
  "$(redirecting)" "$(direct)" "$(address)" "${tools# }" "$(busy)")
more=$(printf 'libmpi=%s\tlibnccl=%s\tplugins=%s\t%s' \
  "$(digest $(needs libmpi.so))" "$(digest $(needs libnccl.so))" "$(digest $(plugins))" "$more")
printf 'GATE\tname=%s\tmemlock=%s\tshm_mib=%s\tbinaries=%s\tmissing=%s\tnccl=%s\tloopback=%s\t%s\n' \
  "${SLURMD_NODENAME:-$(hostname -s)}" "$(ulimit -l)" "$(df -Pm /dev/shm 2>/dev/null | awk 'NR==2 {print $2}')" \
  "$(digest "$bin"/*_perf)" \
  "$(ldd "$bin/all_reduce_perf" 2>&1 | awk '/not found|No such file/ {print $1}' | paste -sd,)" \
  "$(settings)" \
  "$(getent hosts "$(hostname)" | awk '$1 ~ /^127\./ || $1 == "::1" {print $1; exit}')" "$more"
"""

MIXED = {
    "driver": "driver",
    "product": "GPU model",
    "gpus": "number of GPUs",
    "binaries": "nccl-tests binaries (checksum)",
    "libmpi": "the MPI library (checksum)",
    "libnccl": "the NCCL library (checksum)",
    "plugins": "NCCL's network and tuner plugins (checksum)",
    "nccl": "the set of NCCL settings (NCCL_* and nccl.conf)",
}
CONSUMER = re.compile(r"GeForce|TITAN", re.IGNORECASE)  # GPUDirect RDMA is not for them


def read_probe(text: str) -> dict[str, dict[str, str]]:
    """What each node's probe said, by the name it gave."""
    lines = [line[line.index("GATE\t") :] for line in text.splitlines() if "GATE\t" in line]
    fields = [dict(part.partition("=")[::2] for part in line.split("\t")[1:]) for line in lines]
    return {found["name"]: found for found in fields if found.get("name")}


def odd_ones(values: dict[str, Any], what: str) -> Blocked:
    """Nodes that differ from the most frequent value."""
    if len(set(map(str, values.values()))) < 2:
        return []
    usual = Counter(map(str, values.values())).most_common(1)[0][0]
    text = (
        "{what} is {value}, on most nodes {usual}: one gate run is for equal nodes (use --limit for one kind at a time)"
    )
    return [
        {
            "host": host,
            "check": f"same_{what}",
            "reason": text.format(what=MIXED[what], value=value or "empty", usual=usual or "empty"),
        }
        for host, value in values.items()
        if str(value) != usual
    ]


def blocked_by_facts(nodes: dict[str, dict[str, Any]]) -> Blocked:
    """Conditions that facts alone show; `nodes` maps a host to its capability."""
    blocked: Blocked = []
    for host, node in nodes.items():
        if node["state"] != "ok":
            why = node["reason"] or "; ".join(node["problems"][:3]) or "no reason given"
            blocked.append({"host": host, "check": "gpu_facts", "reason": f"gpu_facts says {node['state']}: {why}"})
        elif not node["gpus"]:
            blocked.append({"host": host, "check": "gpu_count", "reason": "no GPU"})
        elif node["mig"]:
            reason = "MIG is enabled: NCCL does not run over GPU instances of one GPU"
            blocked.append({"host": host, "check": "mig", "reason": reason})
    if not blocked:
        for what in ("gpus", "product", "driver"):
            blocked += odd_ones({host: node[what] for host, node in nodes.items()}, what)
    return blocked


def gid_problem(network: dict[str, Any], settings: dict[str, Any]) -> str:
    """What is wrong with the GIDs of a node's RoCE ports; empty when nothing is, or none is RoCE.

    NCCL needs one of type RoCE v2 that is not link-local; NCCL_IB_GID_INDEX, where it is set, must be such a one.
    """
    wanted = str(settings["environment"].get("NCCL_IB_GID_INDEX", ""))
    for rail, routable in (network.get("roce") or {}).items():
        if not routable:
            return f"{rail} has no RoCE v2 GID with an address that can be routed: give its interface an address"
        if wanted.lstrip("-").isdigit() and int(wanted) >= 0 and int(wanted) not in routable:
            good = ", ".join(map(str, routable))
            return f"NCCL_IB_GID_INDEX is {wanted}, but routable RoCE v2 GIDs of {rail} are at {good}"
    return ""


def _of_node(node: dict[str, Any], probe: dict[str, str], settings: dict[str, Any]) -> list[tuple[str, str]]:
    """What one node's probe says against a run: the check, and the reason."""
    found: list[tuple[str, str]] = []
    if probe["missing"]:
        found.append(("missing", f"nccl-tests cannot start: {probe['missing']} is missing"))
    if probe["shm_mib"].isdigit() and int(probe["shm_mib"]) < settings["min_shm_mib"]:
        least = settings["min_shm_mib"]
        found.append(("shm", f"/dev/shm has {probe['shm_mib']} MiB, nccl_tests_min_shm_mib is {least}"))
    if probe.get("busy"):
        found.append(("busy", f"other processes use its GPUs: {probe['busy']}"))
    if not node["rdma"]:
        return found
    if probe["memlock"] != "unlimited":
        found.append(("memlock", f"memlock inside the job is {probe['memlock']} KiB, RDMA needs unlimited"))
    if probe.get("acs"):
        where = f"PCIe ACS at {probe['acs']} sends traffic between GPUs and NICs through the root complex"
        found.append(("acs", f"{where}: turn it off in the firmware"))
    if probe.get("direct") == "none" and not CONSUMER.search(node["product"]):
        how = "neither nvidia-peermem nor the open GPU kernel module with Linux 5.12"
        found.append(("gpudirect", f"NICs cannot reach GPU memory: {how}"))
    if problem := gid_problem(node["network"], settings):
        found.append(("gid", problem))
    return found


def blocked_by_probe(
    nodes: dict[str, dict[str, Any]],
    found: dict[str, dict[str, str]],
    settings: dict[str, Any],
    launcher: str,
    complaint: str = "",
) -> tuple[Blocked, list[str]]:
    """Conditions seen inside the job: those that block, and those that the settings accept, in words.

    `nodes` maps a host to {aliases, rdma, product, network}, `found` a node's name to its probe; `complaint` is what
    the launcher said last.
    """
    blocked: Blocked = []
    accepted: list[str] = []
    seen: dict[str, dict[str, str]] = {}
    for host, node in nodes.items():
        probe = next((found[name] for name in node["aliases"] if name in found), None)
        if probe is None:
            reason = f"the job did not run there: {complaint or 'no answer'}"
            blocked.append({"host": host, "check": "job", "reason": reason})
            continue
        seen[host] = probe
        for word, reason in _of_node(node, probe, settings):
            if word in settings["accepted"]:
                accepted.append(f"{host}: {reason} (accepted)")
            else:
                more = "" if word == "missing" else f" (nccl_tests_accepted: [{word}] measures all the same)"
                blocked.append({"host": host, "check": word, "reason": reason + more})
        if launcher == "mpirun" and len(nodes) > 1 and probe["loopback"]:
            reason = f"its own name resolves to {probe['loopback']}: mpirun would call itself"
            blocked.append({"host": host, "check": "loopback", "reason": reason})
    for what in ("binaries", "libmpi", "libnccl", "plugins", "nccl"):
        blocked += odd_ones({host: probe.get(what, "") for host, probe in seen.items()}, what)
    return blocked, accepted


def asked(blocked: Blocked, launcher: str, rdma: bool, many: bool) -> list[str]:
    """The checks that were made, when these entries are what they found: a group that blocks is the last one."""
    groups = [
        OF_FACTS,
        OF_HARDWARE,
        ("allocation",) if launcher == "slurm" else (),
        (*OF_JOB, *(OF_RDMA if rdma else ()), *(("loopback",) if launcher == "mpirun" and many else ()), *OF_SOFTWARE),
    ]
    found = {entry["check"] for entry in blocked}
    made: list[str] = []
    for group in groups:
        made += group
        if found.intersection(group):
            break
    return made
