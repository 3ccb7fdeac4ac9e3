# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the settings of Ethernet links with the wanted ones, applies, reads back, and undoes when nobody confirms.

Private to this collection: the module ethernet_links and the program of the role ethernet share it, which udev calls
for each link that appears, without Ansible. Wanted state:
{"interfaces": [{"name" | "mac" | "pci" | "driver" | "rdma": ..., "mtu": 9000, "ring": {"rx": "max"}, "channels": {},
"pause": {}, "offloads": {}, "coalesce": {}, "roce": {}, "cm": {}, "ecn": {}}], "protected": [MAC],
"allow_restart": bool, "allow_connection": bool, "rollback_after": seconds, "program": path, "only": name}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _ethtool as ethtool
from ansible_collections.gpuops.cluster.plugins.module_utils._ethernet_look import (
    Links,
    connection_links,
    matcher,
    run,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._ethernet_owner import conflicts

# Groups whose change restarts the queues or the link of many drivers: only with consent, or while the link is down.
RESTARTS = ("mtu", "ring", "channels", "pause")
GROUPS = ("mtu", "ring", "channels", "pause", "offloads", "coalesce", "roce", "cm", "ecn")
RESTORE_FILE = Path("/run/gpuops/ethernet-restore.json")
ROLLBACK_UNIT = "gpuops-ethernet-rollback"


class Change:
    """Wanted values of one group on one link, and what became of them."""

    def __init__(self, link: str, group: str, wanted: dict[str, Any]) -> None:
        self.link, self.group, self.wanted = link, group, wanted
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.state, self.reason = "ok", ""
        self.notes: list[str] = []

    def report(self) -> dict[str, Any]:
        """The change with only the values that were asked for."""
        values = {when: {k: getattr(self, when).get(k) for k in self.wanted} for when in ("before", "after")}
        return {k: getattr(self, k) for k in ("link", "group", "wanted", "state", "reason", "notes")} | values

    def sentences(self) -> list[str]:
        values = ", ".join(f"{k} {ethtool.spoken(v)}".removeprefix("mtu ") for k, v in self.wanted.items())
        reasons = [f"{self.link} {self.group} {values}: {self.reason}"] if self.reason else []
        return [f"{self.link} {self.group}: {note}" for note in self.notes] + reasons


def wanted_changes(links: Links, config: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """Changes in the order in which they can be made: what lies below a link gets its MTU first."""
    changes: list[Change] = []
    missing: list[str] = []
    for entry in config["interfaces"]:
        key = matcher(entry)
        names = links.match(entry)
        if not names:
            missing.append(
                "no Ethernet interface with RDMA" if key == "rdma" else f"no interface with {key} {entry[key]}"
            )
        for name in names:
            for group in (g for g in GROUPS if entry.get(g)):
                values = {"mtu": entry["mtu"]} if group == "mtu" else entry[group]
                wanted = {key: ethtool.meant(value) for key, value in values.items()}
                if group == "mtu":
                    changes += [Change(low, "mtu", dict(wanted)) for low in lower_mtus(links, name, wanted["mtu"])]
                changes.append(Change(name, group, wanted))
    if config.get("only"):
        changes = [c for c in changes if c.link == config["only"]]
    return changes, missing


def lower_mtus(links: Links, name: str, mtu: int) -> list[str]:
    """What needs the MTU first: members of a bond have the same one, parents of a VLAN may have more, never less."""
    equal = (links.net / name / "bonding").exists()
    low_first = [low for low in reversed(links.all_lower(name)) if equal or links.mtu(low) < mtu]
    return list(dict.fromkeys(low_first))


def decide(change: Change, links: Links, config: dict[str, Any], connection: list[str]) -> bool:
    """Reads the present values; true when the change is needed and allowed."""
    change.before, limits, error = ethtool.get(change.group, change.link, links, run)
    change.after = dict(change.before)
    if error:
        change.state, change.reason = "skipped", error
        return False
    change.notes = ethtool.resolve(change.wanted, change.before, limits)
    if not change.wanted:
        change.state = "skipped"
        return False
    if all(change.before.get(k) == v for k, v in change.wanted.items()):
        change.state = "skipped" if change.notes else "ok"
        return False
    if links.identity(change.link)["mac"] in config.get("protected", []) or (
        change.link in connection and not config.get("allow_connection")
    ):
        change.state = "skipped"
        change.reason = (
            "this link carries the Ansible connection; set ethernet_change_connection_link: true to change it"
        )
        return False
    if change.group in RESTARTS and links.is_up(change.link) and not config.get("allow_restart"):
        change.state = "waits"
        change.reason = "restarts the link: set ethernet_link_restart_allowed: true, or reboot"
        return False
    change.state = "changed"
    return True


def rdma_limits(links: Links, config: dict[str, Any]) -> list[str]:
    """RDMA packets have 256 to 4096 bytes and must fit, with their headers, into the MTU."""
    names = [n for entry in config["interfaces"] if entry.get("roce") for n in links.match(entry)]
    mtus = {n: links.mtu(n) for n in names}
    return [
        f"{name}: MTU {mtu} limits RDMA packets to {2048 if mtu >= 2200 else 1024} bytes, 4200 allows 4096"
        for name, mtu in mtus.items()
        if mtu < 4200
    ]


def execute(change: Change, links: Links) -> None:
    error = ethtool.put(change.group, change.link, change.wanted, run)
    change.after = ethtool.get(change.group, change.link, links, run)[0]
    missed = [k for k, v in change.wanted.items() if change.after.get(k) != v]
    if change.after == change.before:
        change.state = "skipped"
    if missed:
        change.reason = error or f"the driver keeps {', '.join(f'{k} {change.after.get(k)}' for k in missed)}"


def arm_rollback(changes: list[Change], seconds: int, program: str) -> str:
    """Undo by a timer, unless confirmed. Returns why it could not be armed, else nothing."""
    if RESTORE_FILE.exists():
        return "an earlier change still waits for its own"
    undo = [
        {"link": c.link, "group": c.group, "values": {k: c.before.get(k) for k in c.wanted}} for c in reversed(changes)
    ]
    RESTORE_FILE.parent.mkdir(parents=True, exist_ok=True)
    RESTORE_FILE.write_text(json.dumps(undo))
    rc, _out, err = run(
        *("systemd-run", "--collect", f"--unit={ROLLBACK_UNIT}", f"--on-active={seconds}s"),
        *("--timer-property=AccuracySec=1s", program, "restore"),
    )
    if rc != 0:
        RESTORE_FILE.unlink()
    return err.strip() if rc != 0 else ""


def restore() -> dict[str, Any]:
    """Puts back the values of before; the file's absence tells the role that it happened."""
    for item in json.loads(RESTORE_FILE.read_text()):
        ethtool.put(item["group"], item["link"], {k: v for k, v in item["values"].items() if v is not None}, run)
    RESTORE_FILE.unlink()
    return {"changed": True}


def confirm() -> dict[str, Any]:
    rolled_back = not RESTORE_FILE.exists()
    run("systemctl", "stop", f"{ROLLBACK_UNIT}.timer")
    RESTORE_FILE.unlink(missing_ok=True)
    return {"changed": False, "rolled_back": rolled_back}


def converge(config: dict[str, Any], apply: bool) -> dict[str, Any]:
    links = Links()
    connection = connection_links(links)
    changes, missing = wanted_changes(links, config)
    needed = [c for c in changes if decide(c, links, config, connection)]
    risky = [c for c in needed if c.link in connection]
    armed = False
    if apply and risky:
        error = arm_rollback(risky, config["rollback_after"], config["program"])
        armed = not error
        for change in risky if error else []:
            change.state, change.reason = "skipped", f"no rollback is possible: {error}"
    for change in needed if apply else []:
        if change.state == "changed":
            execute(change, links)
    return {
        "changed": any(c.state == "changed" for c in changes),
        "rollback_armed": armed,
        "connection": connection,
        "protected": sorted({links.identity(n)["mac"] for n in connection})
        if not config.get("allow_connection")
        else [],
        "changes": [c.report() for c in changes if c.state != "ok"],
        # Not "skipped": Ansible takes a result with that key for a skipped task.
        "left_out": missing
        + [text for c in changes if c.state != "waits" for text in c.sentences()]
        + rdma_limits(links, config)
        + conflicts({c.link: c.wanted["mtu"] for c in changes if "mtu" in c.wanted}, run),
        "waits": [text for c in changes if c.state == "waits" for text in c.sentences()],
    }
