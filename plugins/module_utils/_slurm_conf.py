# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's configuration files as text, from options and node records. Pure and linear. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils._slurm_node import spans

# Which option (or value, written Option=value) a release knows: first release with it, first release without it.
VERSIONS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "CgroupPlugin": ((22, 5), (99, 0)),
    "CgroupPlugin=disabled": ((24, 5), (99, 0)),
    "CgroupAutomount": ((0, 0), (23, 11)),
    "TopologyPlugin=topology/block": ((23, 11), (99, 0)),
}
HEADER = (
    "# Written by the role gpuops.cluster.slurm. Changes by hand are overwritten; set slurm_config_extra instead.\n"
)


def release(version: str) -> tuple[int, int]:
    """(year, month) of "22.05.8"."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        raise ValueError(f"no Slurm release in {version!r}")
    return int(match.group(1)), int(match.group(2))


def known(options: dict[str, Any], version: str) -> dict[str, str]:
    """Options with a value that this release knows, as text."""
    now, kept = release(version), {}
    for name, value in options.items():
        if value is None or value in ("", []):
            continue
        text = ("yes" if value else "no") if isinstance(value, bool) else value
        text = ",".join(str(part) for part in text) if isinstance(text, list) else str(text)
        limits = [VERSIONS[key] for key in (name, f"{name}={text}") if key in VERSIONS]
        if all(since <= now < until for since, until in limits):
            kept[name] = text
    return kept


def _split(name: str) -> tuple[str, str]:
    match = re.match(r"^(.*?)(\d+)$", name)
    return (match.group(1), match.group(2)) if match else (name, "")


def hostlist(names: Iterable[str]) -> str:
    """Names in Slurm's short form: n1, n2, n10, login -> n[1-2,10],login. Zeros in front stay: n01 is not n1."""
    groups: dict[tuple[str, int], list[int]] = {}
    order: list[Any] = []
    for name in names:
        prefix, digits = _split(name)
        if not digits or "[" in name:
            order.append(name)
            continue
        # Padded numbers share a width; plain ones are told apart from padded ones by their first digit.
        key = (prefix, len(digits) if digits.startswith("0") and len(digits) > 1 else 0)
        if key not in groups:
            groups[key] = []
            order.append(key)
        groups[key].append(int(digits))
    return ",".join(item if isinstance(item, str) else _group(item, groups[item]) for item in order)


def _group(key: tuple[str, int], numbers: list[int]) -> str:
    prefix, width = key
    found = spans(numbers)
    texts = [f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}" for low, high in found]
    if len(found) == 1 and found[0][0] == found[0][1]:
        return prefix + texts[0]
    return f"{prefix}[{','.join(texts)}]"


def gres_counts(gres: list[dict[str, str]]) -> dict[str, int]:
    """GPUs of a node by type, in order."""
    counts: dict[str, int] = {}
    for entry in gres:
        counts[entry["type"]] = counts.get(entry["type"], 0) + 1
    return counts


def declared_gres(record: dict[str, Any]) -> list[str]:
    """What was declared beside the GPUs that were seen, as name:count or name:type:count (local scratch)."""
    text = str((record.get("options") or {}).get("Gres") or "")
    return [word.strip() for word in text.split(",") if word.strip()]


def gres_types(option: Any, records: Iterable[dict[str, Any]]) -> str:
    """GresTypes with the names of everything declared."""
    names = option if isinstance(option, list) else str(option or "").split(",")
    declared = (word.partition(":")[0] for record in records for word in declared_gres(record))
    return ",".join(dict.fromkeys(name for name in (*names, *declared) if name))


def node_fields(record: dict[str, Any]) -> str:
    """A NodeName line without the name."""
    node = record["node"]
    fields = {"Sockets": node["sockets"], "CoresPerSocket": node["cores"], "ThreadsPerCore": node["threads"]}
    fields["RealMemory"] = node["real_memory"]
    counts = gres_counts(node["gres"])
    gres = [f"gpu:{kind}:{count}" for kind, count in counts.items()] + declared_gres(record)
    if gres:
        fields["Gres"] = ",".join(gres)
    fields.update({key: value for key, value in (record.get("options") or {}).items() if key != "Gres"})
    return " ".join(f"{key}={value}" for key, value in fields.items())


def node_lines(records: Iterable[dict[str, Any]]) -> list[str]:
    """NodeName lines; nodes that are alike share one, nodes with an address of their own do not."""
    alike: dict[str, list[str]] = {}
    for record in records:
        fields, address = node_fields(record), record.get("address")
        key = f"NodeAddr={address} {fields}" if address else fields
        alike.setdefault(key, []).append(record["node"]["name"])
    return [f"NodeName={hostlist(names)} {fields} State=UNKNOWN" for fields, names in alike.items()]


def gres_lines(records: Iterable[dict[str, Any]]) -> list[str]:
    """gres.conf for the whole cluster; devices that differ only in their number share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        lines = (*_device_lines(record["node"]["gres"]), *_counted_lines(declared_gres(record)))
        if lines:
            alike.setdefault(lines, []).append(record["node"]["name"])
    return [f"NodeName={hostlist(names)} {line}" for lines, names in alike.items() for line in lines]


def _counted_lines(declared: list[str]) -> Iterable[str]:
    """Lines of what has no device file: Slurm only counts it."""
    for word in declared:
        name, *kind, count = word.split(":")
        yield " ".join([f"Name={name}", *(f"Type={each}" for each in kind), f"Count={count}", "Flags=CountOnly"])


def _device_lines(gres: list[dict[str, str]]) -> Iterable[str]:
    merged: dict[tuple[str, str, str], list[str]] = {}
    for index, entry in enumerate(gres):
        # Links are counted against the order of lines, and a MIG device has several files: such lines stand alone.
        alone = f"#{index}" if entry["links"] or "," in entry["file"] else ""
        merged.setdefault((entry["type"], entry["cores"], entry["links"] + alone), []).append(entry["file"])
    for (kind, cores, links), files in merged.items():
        several = "," in files[0]
        words = ["Name=gpu", f"Type={kind}", f"MultipleFiles={files[0]}" if several else f"File={hostlist(files)}"]
        words += [f"Cores={cores}"] if cores else []
        words += [f"Links={links.partition('#')[0]}"] if links.partition("#")[0] else []
        yield " ".join(words)


def partition_lines(partitions: list[dict[str, Any]], records: dict[str, dict[str, Any]]) -> list[str]:
    """PartitionName lines. `records` by inventory name; a partition without `nodes` has all of them."""
    lines = []
    for partition in partitions:
        members = [records[name] for name in partition.get("nodes") or records if name in records]
        fields: dict[str, Any] = {"Nodes": hostlist(member["node"]["name"] for member in members)}
        if members:
            # Without a default a job that names no memory takes the whole node, and nobody shares.
            fields["DefMemPerCPU"] = min(max(m["node"]["real_memory"] // m["node"]["cpus"], 1) for m in members)
        fields.update({"MaxTime": "UNLIMITED", "State": "UP", "Default": "YES" if partition.get("default") else "NO"})
        fields.update(partition.get("options") or {})
        lines.append(f"PartitionName={partition['name']} " + " ".join(f"{k}={v}" for k, v in fields.items() if v != ""))
    return lines


def controller_lines(controllers: list[dict[str, str]]) -> list[str]:
    """SlurmctldHost lines: each controller's own short name, its address in parentheses where names do not resolve."""
    named = [(controller["name"], controller.get("address")) for controller in controllers]
    return [f"SlurmctldHost={name}({address})" if address else f"SlurmctldHost={name}" for name, address in named]


def option_lines(options: dict[str, Any], version: str) -> list[str]:
    return [f"{name}={value}" for name, value in known(options, version).items()]


def parse(text: str) -> dict[str, str]:
    """Options of a file by lower-case name; lines of the same name (NodeName, PartitionName) are gathered."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        key = name.strip().lower()
        if equals and not key.startswith("#"):
            found.setdefault(key, []).append(value.strip())
    return {key: "\n".join(values) for key, values in found.items()}
