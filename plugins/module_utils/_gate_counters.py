# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of GPUs and ports before, during and after the measurements: evidence, never a verdict of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

# One task a node. $1: seconds to go on looking at clocks while nccl-tests runs (0: one look at everything).
# Each line: CNT, node, device, counter, value. What a node cannot tell is left out.
SCRIPT = r"""
wait=${1:-0}
name=${SLURMD_NODENAME:-$(hostname -s)}
say() { awk -v n="$name" 'BEGIN {OFS = "\t"} NF == 3 {print "CNT", n, $1, $2, $3}'; }
smi() { timeout 30 nvidia-smi "$@" 2>/dev/null; }
# Bit masks of why clocks are lowered. Idle and settings of a person are not worth a word.
clocks() {
  for field in clocks_event_reasons.active clocks_throttle_reasons.active; do
    seen=$(smi --query-gpu="index,$field,temperature.gpu" --format=csv,noheader,nounits) && break
  done
  printf '%s\n' "$seen" | tr -d ' ' |
    awk -F, 'NF == 3 && $2 ~ /^0x/ {print "gpu" $1, "clocks", $2; print "gpu" $1, "celsius", $3}'
}
if [ "$wait" -gt 0 ]; then
  started=0 since=$(date +%s)
  while [ $(($(date +%s) - since)) -lt "$wait" ]; do
    if ps -e -o args= | grep -q '[_]perf '; then started=1; clocks; elif [ $started = 1 ]; then break; fi
    [ $started = 1 ] || [ $(($(date +%s) - since)) -lt 30 ] || break
    sleep 1
  done | sort -u | say
  exit 0
fi
smi --query-gpu=index,ecc.errors.uncorrected.volatile.total,ecc.errors.corrected.volatile.total \
  --format=csv,noheader,nounits | tr -d ' ' |
  awk -F, '$2 ~ /^[0-9]+$/ {print "gpu" $1, "ecc_uncorrected", $2}
    $3 ~ /^[0-9]+$/ {print "gpu" $1, "ecc_corrected", $3}' | say
smi nvlink -e | awk '/^GPU [0-9]+:/ {g = $2; sub(":", "", g); seen[g] = 1} /Error/ {sum[g] += $NF}
  END {for (g in seen) print "gpu" g, "nvlink_errors", sum[g] + 0}' | say
clocks | say
{ dmesg 2>/dev/null || journalctl -kb -o cat --no-pager 2>/dev/null; } |
  grep -oE 'NVRM: Xid \(PCI:[0-9a-fA-F:.]+\): [0-9]+' | tr -d '()' |
  sort | uniq -c | awk '{sub(/^PCI:/, "", $4); sub(/:$/, "", $4); print $4, "xid_" $5, $1}' | say
for port in /sys/class/infiniband/*/ports/*; do
  [ -d "$port" ] || continue
  card=${port#/sys/class/infiniband/}; card=${card%%/*}
  for counter in symbol_error link_error_recovery link_downed port_rcv_errors local_link_integrity_errors \
    excessive_buffer_overrun_errors VL15_dropped out_of_sequence packet_seq_err local_ack_timeout_err \
    rnr_nak_retry_err implied_nak_seq_err; do
    for folder in counters hw_counters; do
      [ -r "$port/$folder/$counter" ] && read -r value <"$port/$folder/$counter" && echo "$card $counter $value"
    done
  done
done 2>/dev/null | say
for link in /sys/class/net/*; do
  [ -e "$link/device" ] || continue
  for counter in statistics/rx_errors statistics/tx_errors statistics/rx_crc_errors carrier_changes; do
    [ -r "$link/$counter" ] && read -r value <"$link/$counter" && echo "${link##*/} ${counter#*/} $value"
  done
done 2>/dev/null | say
"""

# NVML's bits that say something is wrong; idle (1), application clocks (2) and sync boost (16) do not, and the power
# cap (4) is how every GPU under full load runs.
CLOCKS = {
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
GRAVE = ("xid_", "ecc_uncorrected", "link_downed", "clocks", "carrier_changes")
HOT = 90  # degrees Celsius from which a GPU's temperature is worth a word

Values = dict[str, dict[str, int]]  # device to counter to value


def read(text: str) -> dict[str, Values]:
    """What each node said, by the name it gave. Of several looks masks are joined, and the highest figure counts."""
    nodes: dict[str, Values] = {}
    for line in text.splitlines():
        at = line.find("CNT\t")
        parts = line[at:].rstrip().split("\t") if at >= 0 else []
        if len(parts) != 5:
            continue
        _tag, name, device, counter, value = parts
        try:
            number = int(value, 16 if value.startswith("0x") else 10)
        except ValueError:
            continue
        found = nodes.setdefault(name, {}).setdefault(device, {})
        if counter == "clocks":
            found[counter] = found.get(counter, 0) | number
        else:
            found[counter] = max(found.get(counter, 0), number)
    return nodes


def _slot(address: str) -> str:
    """bb:dd of a PCI address, whose domain is four or eight digits long, with the end of the domain."""
    return address.partition(".")[0].lower()[-9:]


def _rises(host: str, before: Values, after: Values) -> list[dict[str, Any]]:
    """Counters that grew. One that is not there before counted nothing then (an Xid, say); one of a port may be new."""
    found = []
    for device, counters in sorted(after.items()):
        for counter, value in sorted(counters.items()):
            old = before.get(device, {}).get(counter, 0 if counter.startswith("xid_") else value)
            if counter not in ("clocks", "celsius") and value > old:
                found.append({"host": host, "device": device, "counter": counter, "before": old, "after": value})
    return found


def moved(
    host: str, before: Values, during: Values, after: Values, addresses: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """All that is worth a line in the report: {host, device, counter, before, after}.

    Xids come with a PCI address; `addresses` are those of the node's GPUs in their order.
    """
    found = _rises(host, before, after)
    for entry in found:
        known = [n for n, pci in enumerate(addresses) if _slot(pci) == _slot(str(entry["device"]))]
        if known and str(entry["counter"]).startswith("xid_"):
            entry["device"] = f"gpu{known[0]}"
    for device, counters in sorted(during.items()):
        mask = counters.get("clocks", 0)
        for bit, reason in CLOCKS.items():
            if mask & bit:
                held = before.get(device, {}).get("clocks", 0) & bit
                found.append(
                    {
                        "host": host,
                        "device": device,
                        "counter": f"clocks_{reason}",
                        "before": int(bool(held)),
                        "after": 1,
                    }
                )
        if counters.get("celsius", 0) >= HOT:
            cold = before.get(device, {}).get("celsius", 0)
            found.append(
                {"host": host, "device": device, "counter": "celsius", "before": cold, "after": counters["celsius"]}
            )
    return found


def words(entry: dict[str, Any]) -> str:
    """One counter in words: "GPU 3: 2 x Xid 79"."""
    device, counter = str(entry["device"]), str(entry["counter"])
    where = f"GPU {device[3:]}" if device.startswith("gpu") else device
    if counter.startswith("xid_"):
        return f"{where}: {entry['after'] - entry['before']} x Xid {counter[4:]}"
    if counter.startswith("clocks_"):
        return f"{where}: clocks lowered ({counter[7:]}) while it was measured"
    if counter == "celsius":
        return f"{where}: {entry['after']} degrees Celsius"
    return f"{where}: {counter} rose by {entry['after'] - entry['before']} to {entry['after']}"


def evidence(moves: list[dict[str, Any]], host: str, limit: int = 4) -> str:
    """What a host's counters add to an accusation; empty when nothing moved."""
    own = [entry for entry in moves if entry["host"] == host]
    own.sort(key=lambda entry: not entry["counter"].startswith(GRAVE))
    text = ", ".join(words(entry) for entry in own[:limit])
    return f"{text}{f' and {len(own) - limit} more' if len(own) > limit else ''}"


def warnings(moves: list[dict[str, Any]]) -> list[str]:
    """Grave counters of hosts that may have passed all the same."""
    return [f"{entry['host']}: {words(entry)}" for entry in moves if entry["counter"].startswith(GRAVE)]


def refine(culprit: dict[str, Any], moves: list[dict[str, Any]]) -> dict[str, Any]:
    """The accusation with what the host's counters say of it.

    A node becomes a GPU or a NIC where grave counters or port errors of exactly one device grew, and it is such a one.
    """
    text = evidence(moves, culprit["host"])
    if not text:
        return culprit
    refined = {**culprit, "evidence": f"{culprit['evidence']}; meanwhile {text}"}
    device = _single(moves, culprit["host"]) if culprit["kind"] == "node" else None
    if device is None:
        return refined
    kind = "gpu" if device.startswith("gpu") else "nic"
    return {**refined, "kind": kind, "device": device[3:] if kind == "gpu" else device}


def _single(moves: list[dict[str, Any]], host: str) -> Optional[str]:
    devices = {
        str(entry["device"])
        for entry in moves
        if entry["host"] == host and entry["counter"] not in ("celsius", "ecc_corrected")
    }
    return devices.pop() if len(devices) == 1 else None
