# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes groups of link settings by ip, ethtool and dcb; private to this collection.

A group is mtu, ring, channels, pause, offloads, coalesce, roce, cm or ecn. Values are whole numbers, booleans or lists.
Tolerates what releases of ethtool differ in: "n/a", unknown keys, missing sections. Runs on a node without Ansible too.
"""

from __future__ import annotations

import re
from typing import Any, Callable

from ansible_collections.gpuops.cluster.plugins.module_utils import _roce

Run = Callable[..., "tuple[int, str, str]"]
Values = dict[str, Any]

READ = {"ring": "-g", "channels": "-l", "pause": "-a", "offloads": "-k", "coalesce": "-c"}
WRITE = {"ring": "-G", "channels": "-L", "pause": "-A", "offloads": "-K", "coalesce": "-C"}
# What `ethtool -k` prints for the short names that `ethtool -K` takes.
OFFLOADS = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}


def key_of(words: str) -> str:
    """ "RX Mini" -> "rx-mini"."""
    return "-".join(words.lower().split())


def parse_limits(text: str) -> tuple[Values, Values]:
    """`ethtool -g` or `-l`: present values and maxima; a value of "n/a" is left out."""
    now: Values = {}
    most: Values = {}
    target = now
    for line in text.splitlines():
        if "maximums" in line:
            target = most
        elif "Current hardware settings" in line:
            target = now
        elif match := re.fullmatch(r"(.+?):\s+(\d+)", line.strip()):
            target[key_of(match.group(1))] = int(match.group(2))
    return now, most


def parse_flags(text: str) -> Values:
    """`ethtool -k`, `-a` or `-c`: on and off as booleans, numbers as numbers; "[fixed]" gives a second key "KEY!"."""
    values: Values = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"Adaptive RX:\s+(\S+)\s+TX:\s+(\S+)", line.strip()):
            pairs = [("adaptive-rx", match.group(1)), ("adaptive-tx", match.group(2))]
        elif match := re.fullmatch(r"(.+?):\s+(\S+)(\s+\[.*\])?", line.strip()):
            pairs = [(key_of(match.group(1)), match.group(2))]
            if match.group(3) and "fixed" in match.group(3):
                values[pairs[0][0] + "!"] = True
        else:
            continue
        for key, word in pairs:
            if word in ("on", "off"):
                values[key] = word == "on"
            elif word.isdigit():
                values[key] = int(word)
    if "autonegotiate" in values:
        values["autoneg"] = values.pop("autonegotiate")
    for short, long in OFFLOADS.items():
        if long in values:
            values[short] = values[long]
            if long + "!" in values:
                values[short + "!"] = True
    return values


def parse_dcb(pfc: str, app: str) -> Values:
    """`dcb pfc show` and `dcb -N app show`: the priorities with flow control, and the DSCP map as "DSCP:PRIORITY"."""
    prio = re.search(r"prio-pfc((?:\s+\d:(?:on|off))+)", pfc)
    dscp = re.search(r"dscp-prio((?:\s+\d+:\d+)+)", app)
    return {
        "pfc": [int(p) for p in re.findall(r"(\d):on", prio.group(1))] if prio else [],
        "dscp": sorted(dscp.group(1).split()) if dscp else [],
    }


def last_words(text: str, code: int) -> str:
    """The driver's own words: the last line that is not ethtool's hint at another option."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {code}"


def get(group: str, link: str, links: Any, run: Run) -> tuple[Values, Values, str]:
    """Present values, maxima, and why neither could be read."""
    if group == "mtu":
        out = run("ip", "-d", "link", "show", "dev", link)[1]
        most = re.search(r"maxmtu (\d+)", out)
        limits = {"mtu": int(most.group(1))} if most and int(most.group(1)) > 0 else {}
        return {"mtu": links.mtu(link)}, limits, ""
    if group == "roce":
        values, error = get_roce(link, run)
        return values, {}, error
    if group in ("cm", "ecn"):
        values, error = _roce.get_cm(link) if group == "cm" else _roce.get_ecn(link)
        return values, {}, error
    rc, out, err = run("ethtool", READ[group], link)
    if rc != 0:
        return {}, {}, last_words(err, rc)
    if group in ("ring", "channels"):
        return *parse_limits(out), ""
    return parse_flags(out), {}, ""


def get_roce(link: str, run: Run) -> tuple[Values, str]:
    rc, pfc, err = run("dcb", "pfc", "show", "dev", link)
    if rc != 0:
        return {}, last_words(err, rc)
    return parse_dcb(pfc, run("dcb", "-N", "app", "show", "dev", link)[1]), ""


def resolve(wanted: Values, now: Values, limits: Values) -> list[str]:
    """Turns "max" into numbers, clamps to the maxima and drops what the driver does not offer; says so in notes."""
    notes = []
    for key in list(wanted):
        if wanted[key] == "max":
            wanted[key] = limits.get(key, now.get(key))
        if key not in now:
            notes.append(f"the driver reports no {key}")
            del wanted[key]
        elif now.get(key + "!") and now[key] != wanted[key]:
            notes.append(f"the driver fixes {key} at {'on' if now[key] else 'off'}")
            del wanted[key]
        elif isinstance(limits.get(key), int) and wanted[key] > limits[key]:
            notes.append(f"{key} {wanted[key]} is above the maximum, {limits[key]} taken")
            wanted[key] = limits[key]
    return notes


def meant(value: Any) -> Any:
    """A value as a user may write it: templates give strings, YAML 1.1 reads on and off as booleans."""
    if isinstance(value, str):
        if value.isdigit():
            return int(value)
        return {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}.get(
            value.lower(), value
        )
    return value


def arguments(values: Values) -> list[str]:
    """{"rx": 512, "autoneg": True} -> ["rx", "512", "autoneg", "on"]."""
    words = []
    for key, value in values.items():
        words += [key, spoken(value)]
    return words


def spoken(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def put(group: str, link: str, values: Values, run: Run) -> str:
    """Sets values; returns what refused in its own words, else nothing."""
    if group == "mtu":
        rc, _out, err = run("ip", "link", "set", "dev", link, "mtu", str(values["mtu"]))
        return last_words(err, rc) if rc != 0 else ""
    if group == "roce":
        return put_roce(link, values, run)
    if group in ("cm", "ecn"):
        return _roce.put_cm(link, values, run) if group == "cm" else _roce.put_ecn(link, values)
    rc, out, err = run("ethtool", WRITE[group], link, *arguments(values))
    if rc == 0:
        return ""
    if len(values) == 1:
        return last_words(err or out, rc)
    # One refused value makes ethtool give up all of them: the others are tried alone.
    errors = [f"{k}: {e}" for k, v in values.items() if (e := put(group, link, {k: v}, run))]
    return "; ".join(errors)


def put_roce(link: str, values: Values, run: Run) -> str:
    commands = []
    if "pfc" in values:
        on = [f"{priority}:on" for priority in values["pfc"]]
        commands.append(("dcb", "pfc", "set", "dev", link, "prio-pfc", "all:off", *on))
    if "dscp" in values:
        commands.append(("dcb", "app", "flush", "dev", link, "dscp-prio"))
        if values["dscp"]:
            commands.append(("dcb", "app", "add", "dev", link, "dscp-prio", *values["dscp"]))
    for command in commands:
        rc, _out, err = run(*command)
        if rc != 0:
            return last_words(err, rc)
    return ""
