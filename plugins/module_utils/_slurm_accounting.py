# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sacctmgr has to be told so that accounts, users and qualities of service are as wanted. Pure. Private."""

from __future__ import annotations

import re
from typing import Any, Optional

QOS_FORMAT = "Name,Priority,MaxTRESPU,MaxWall,Preempt"
ASSOC_FORMAT = "Account,ParentName,User,Share,GrpTRES,QOS"


def minutes(text: str) -> Optional[int]:
    """Slurm's time as minutes: "90", "1:30:00", "7-0", "7-00:00:00"; None for no limit."""
    match = re.match(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$", text.strip())
    if not match:
        return None
    days, first, second, third = (int(part) if part else None for part in match.groups())
    if days is not None:
        return days * 1440 + (first or 0) * 60 + (second or 0)
    if third is not None:
        return (first or 0) * 60 + (second or 0)
    return first  # "minutes" or "minutes:seconds"


def _gpus(tres: str) -> Optional[int]:
    found = re.search(r"(?:^|,)gres/gpu=(\d+)", tres)
    return int(found.group(1)) if found else None


def _names(text: str) -> list[str]:
    return sorted(part for part in text.split(",") if part)


def _rows(text: str, count: int) -> list[list[str]]:
    return [[*line.split("|"), *[""] * count][:count] for line in text.splitlines() if line.strip()]


def read_qos(text: str) -> dict[str, dict[str, Any]]:
    """Answer of `sacctmgr -nP show qos` with QOS_FORMAT."""
    return {
        name: {"priority": int(priority or 0), "gpus": _gpus(tres), "wall": minutes(wall), "preempts": _names(preempt)}
        for name, priority, tres, wall, preempt in _rows(text, 5)
    }


def read_accounts(text: str) -> dict[str, dict[str, Any]]:
    """Answer of `sacctmgr -nP show assoc` with ASSOC_FORMAT, for one cluster."""
    accounts: dict[str, dict[str, Any]] = {}
    for name, parent, user, share, tres, qos in _rows(text, 6):
        if user:
            accounts.setdefault(name, {"users": []})["users"].append(user)
        else:
            fields = {"parent": parent, "fairshare": share, "gpus": _gpus(tres), "qos": _names(qos)}
            accounts.setdefault(name, {"users": []}).update(fields)
    return accounts


def plan_qos(now: dict[str, dict[str, Any]], wanted: list[dict[str, Any]]) -> list[list[str]]:
    """Arguments of sacctmgr, command by command. All are added before any names another in Preempt."""
    adds = [["add", "qos", qos["name"]] for qos in wanted if qos["name"] not in now]
    changes = []
    for qos in wanted:
        old = now.get(qos["name"], {"priority": 0, "gpus": None, "wall": None, "preempts": []})
        settings = []
        if "priority" in qos and int(qos["priority"]) != old["priority"]:
            settings.append(f"Priority={int(qos['priority'])}")
        if "max_gpus_per_user" in qos and qos["max_gpus_per_user"] != old["gpus"]:
            settings.append(f"MaxTRESPerUser=gres/gpu={_limit(qos['max_gpus_per_user'])}")
        if "max_time" in qos and minutes(str(qos["max_time"])) != old["wall"]:
            settings.append(f"MaxWall={qos['max_time']}" if minutes(str(qos["max_time"])) is not None else "MaxWall=-1")
        if "preempts" in qos and sorted(qos["preempts"]) != old["preempts"]:
            settings.append("Preempt=" + ",".join(sorted(qos["preempts"])))
        if settings:
            changes.append(["modify", "qos", qos["name"], "set", *settings])
    return adds + changes


def plan_accounts(now: dict[str, dict[str, Any]], wanted: list[dict[str, Any]], cluster: str) -> list[list[str]]:
    """Likewise for accounts, parents before children, and their users. Nobody is removed."""
    commands = []
    for account in _parents_first(wanted):
        name, old = account["name"], now.get(account["name"])
        if old is None:
            parent = account.get("parent") or "root"
            commands.append(["add", "account", name, f"cluster={cluster}", f"parent={parent}"])
            old = {"parent": parent, "fairshare": "1", "gpus": None, "qos": ["normal"], "users": []}
        settings = []
        if (account.get("parent") or old["parent"]) != old["parent"]:
            settings.append(f"parent={account['parent']}")
        if "fairshare" in account and str(account["fairshare"]) != old["fairshare"]:
            settings.append(f"fairshare={account['fairshare']}")
        if "max_gpus" in account and account["max_gpus"] != old["gpus"]:
            settings.append(f"GrpTRES=gres/gpu={_limit(account['max_gpus'])}")
        if "qos" in account and sorted(account["qos"]) != old["qos"]:
            settings.append("qos=" + ",".join(account["qos"]))
        if settings:
            commands.append(["modify", "account", "where", f"name={name}", f"cluster={cluster}", "set", *settings])
        new = [user for user in account.get("users") or [] if user not in old["users"]]
        if new:
            commands.append(["add", "user", ",".join(new), f"account={name}", f"cluster={cluster}"])
    return commands


def _limit(count: Optional[int]) -> int:
    """-1 is sacctmgr's word for "no limit"."""
    return -1 if count is None else count


def _parents_first(accounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {account["name"] for account in accounts}
    done: list[dict[str, Any]] = []
    left = list(accounts)
    while left:
        placed = {account["name"] for account in done}
        ready = [account for account in left if account.get("parent") not in names - placed]
        if not ready:
            raise ValueError(f"slurm_accounts: {', '.join(a['name'] for a in left)} are each other's parents")
        done += ready
        left = [account for account in left if account not in ready]
    return done
