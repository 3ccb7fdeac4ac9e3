# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sacctmgr has to be told so that accounts, users and qualities of service are as wanted. Pure. Private."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

Row = dict[str, Any]
Commands = list[list[str]]


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


def _number(text: str) -> Optional[int]:
    return int(text) if text.strip() else None


def _names(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return sorted(str(part).lower() for part in parts if part)


def _limit(value: Any) -> str:
    """-1 is sacctmgr's word for "no limit"; users write it so, too."""
    return "-1" if value is None else str(value)


def _count(value: Any) -> Optional[int]:
    return None if value is None or int(value) < 0 else int(value)


@dataclass(frozen=True)
class Field:
    """One thing that can be set.

    ``column`` is where `sacctmgr show` tells it, ``word`` what `sacctmgr modify … set` calls it. ``read`` makes a value
    of a column, ``normal`` the same of what the user wrote, so that the two compare; ``write`` makes sacctmgr's text.
    """

    column: str
    word: str
    read: Callable[[str], Any]
    normal: Callable[[Any], Any]
    write: Callable[[Any], str]


def _gpu_limit(column: str, word: str) -> Field:
    return Field(column, f"{word}=gres/gpu", _gpus, _count, _limit)


def _number_limit(column: str, word: str) -> Field:
    return Field(column, word, _number, _count, _limit)


def _list(column: str) -> Field:
    return Field(column, column, _names, _names, ",".join)


def _text(column: str, word: str) -> Field:
    return Field(column, word, str.lower, lambda value: str(value).lower(), str)


# By the names that the modules' options and the role's variables have. In the order in which sacctmgr is told.
QOS = {
    "priority": Field("Priority", "Priority", lambda text: _number(text) or 0, int, str),
    "max_gpus": _gpu_limit("GrpTRES", "GrpTRES"),
    "max_gpus_per_job": _gpu_limit("MaxTRES", "MaxTRESPerJob"),
    "max_gpus_per_user": _gpu_limit("MaxTRESPU", "MaxTRESPerUser"),
    "max_jobs_per_user": _number_limit("MaxJobsPU", "MaxJobsPerUser"),
    "max_time": Field("MaxWall", "MaxWall", minutes, lambda value: minutes(str(value)), _limit),
    "preempts": _list("Preempt"),
    "flags": Field("Flags", "Flags", _names, _names, lambda flags: ",".join(flags) or "-1"),
}
ASSOCIATION = {
    "fairshare": _text("Share", "fairshare"),
    "max_gpus": _gpu_limit("GrpTRES", "GrpTRES"),
    "max_jobs": _number_limit("MaxJobs", "MaxJobs"),
    "qos": Field("QOS", "qos", _names, _names, ",".join),
    "default_qos": _text("DefaultQOS", "DefaultQOS"),
}


def _format(keys: Sequence[str], fields: Mapping[str, Field]) -> str:
    return ",".join([*keys, *(field.column for field in fields.values())])


QOS_FORMAT = _format(["Name"], QOS)
ASSOC_FORMAT = _format(["Account", "ParentName", "User"], ASSOCIATION)
USER_FORMAT = "User,DefaultAccount,AdminLevel"


def _rows(text: str, count: int) -> list[list[str]]:
    return [[*line.split("|"), *[""] * count][:count] for line in text.splitlines() if line.strip()]


def _values(cells: Sequence[str], fields: Mapping[str, Field]) -> Row:
    return {name: field.read(cell) for (name, field), cell in zip(fields.items(), cells)}


def read_qos(text: str) -> dict[str, Row]:
    """Answer of `sacctmgr -nP show qos` with QOS_FORMAT."""
    return {name: _values(cells, QOS) for name, *cells in _rows(text, 1 + len(QOS))}


def read_accounts(text: str) -> dict[str, Row]:
    """Answer of `sacctmgr -nP show assoc` with ASSOC_FORMAT, for one cluster: by account, `users` by name."""
    accounts: dict[str, Row] = {}
    for name, parent, user, *cells in _rows(text, 3 + len(ASSOCIATION)):
        account = accounts.setdefault(name, {"users": {}})
        if user:
            account["users"][user] = _values(cells, ASSOCIATION)
        else:
            account.update({"parent": parent, **_values(cells, ASSOCIATION)})
    return accounts


def read_users(text: str) -> dict[str, Row]:
    """Answer of `sacctmgr -nP show user` with USER_FORMAT."""
    return {name: {"default_account": account, "admin_level": level.lower()} for name, account, level in _rows(text, 3)}


def known_user(name: str, users: Mapping[str, Any]) -> str:
    """The name as the database has it: it writes names in lower case unless slurmdbd.conf says otherwise."""
    return next((each for each in users if each.lower() == name.lower()), name)


def settings(fields: Mapping[str, Field], old: Row, wanted: Row) -> list[str]:
    """What differs, as words of sacctmgr. Only what is named in ``wanted`` is looked at."""
    return [
        f"{field.word}={field.write(field.normal(wanted[name]))}"
        for name, field in fields.items()
        if name in wanted and field.normal(wanted[name]) != old.get(name)
    ]


def normal(fields: Mapping[str, Field], wanted: Row) -> Row:
    """The wanted values in the form in which they are read."""
    return {name: field.normal(wanted[name]) for name, field in fields.items() if name in wanted}


def plan_qos(now: Mapping[str, Row], wanted: Sequence[Row]) -> Commands:
    """Arguments of sacctmgr, command by command. All are added before any names another in Preempt."""
    adds, changes = [], []
    for qos in wanted:
        name = str(qos["name"]).lower()
        if name not in now:
            adds.append(["add", "qos", name])
        fresh = {"priority": 0, "preempts": [], "flags": []}
        told = settings(QOS, now.get(name, fresh), qos)
        if told:
            changes.append(["modify", "qos", name, "set", *told])
    return adds + changes


def remove_qos(now: Mapping[str, Row], name: str) -> Commands:
    return [["delete", "qos", "where", f"name={name.lower()}"]] if name.lower() in now else []


def plan_accounts(now: Mapping[str, Row], wanted: Sequence[Row], cluster: str) -> Commands:
    """Likewise for accounts, parents before children, and their users. Nobody is removed."""
    commands: Commands = []
    for account in _parents_first(wanted):
        name, parent = str(account["name"]).lower(), str(account.get("parent") or "").lower()
        old = now.get(name)
        if old is None:
            parent = parent or "root"
            commands.append(["add", "account", name, f"cluster={cluster}", f"parent={parent}"])
            old = {"parent": parent, "fairshare": "1", "qos": ["normal"], "default_qos": "", "users": {}}
        told = [f"parent={parent}"] if parent and parent != old["parent"] else []
        told += settings(ASSOCIATION, old, account)
        if told:
            commands.append(["modify", "account", "where", f"name={name}", f"cluster={cluster}", "set", *told])
        new = [user for user in account.get("users") or [] if known_user(user, old["users"]) not in old["users"]]
        if new:
            commands.append(["add", "user", ",".join(new), f"account={name}", f"cluster={cluster}"])
    return commands


def remove_account(now: Mapping[str, Row], name: str, cluster: str, *, recursive: bool) -> Commands:
    """Commands; a ValueError names what would go along while that is not allowed.

    An empty ``cluster`` stands for all: only then does Slurm forget the account's name, too.
    """
    name = name.lower()
    if name not in now:
        return []
    below = [f"account {other}" for other, fields in now.items() if fields.get("parent") == name]
    below += [f"user {user}" for user in now[name]["users"]]
    if below and not recursive:
        raise ValueError(f"account {name} is not empty: {', '.join(below)}; remove them first, or set recursive=true")
    return [["delete", "account", "where", f"name={name}", *_of(cluster)]]


def plan_user(users: Mapping[str, Row], accounts: Mapping[str, Row], wanted: Row, cluster: str) -> Commands:
    """Commands for one user in one account: ``name``, ``account``, ``default``, ``admin_level`` and an ASSOCIATION."""
    name, account = known_user(wanted["name"], users), str(wanted["account"]).lower()
    if account not in accounts:
        raise ValueError(f"there is no account {account} in cluster {cluster}; there are: {', '.join(accounts)}")
    where = [f"name={name}", f"cluster={cluster}"]
    old = accounts[account]["users"].get(name)
    commands: Commands = []
    if old is None:
        commands.append(["add", "user", name, f"account={account}", f"cluster={cluster}"])
        old = {"fairshare": "1", "qos": accounts[account].get("qos"), "default_qos": ""}
    told = settings(ASSOCIATION, old, wanted)
    if told:
        commands.append(["modify", "user", "where", *where, f"account={account}", "set", *told])
    # A new user's first account is the default by itself.
    known = users.get(name, {"default_account": account, "admin_level": "none"})
    if wanted.get("default") and known["default_account"] != account:
        commands.append(["modify", "user", "where", *where, "set", f"DefaultAccount={account}"])
    level = str(wanted.get("admin_level") or known["admin_level"]).lower()
    if level != known["admin_level"]:
        commands.append(["modify", "user", "where", f"name={name}", "set", f"AdminLevel={level}"])
    return commands


def remove_user(users: Mapping[str, Row], accounts: Mapping[str, Row], wanted: Row, cluster: str) -> Commands:
    """Out of one account, or, where none is named, out of the cluster. An empty ``cluster`` stands for all."""
    name, account = known_user(wanted["name"], users), str(wanted.get("account") or "").lower()
    if account:
        there = name in accounts.get(account, {"users": {}})["users"]
        where = [f"name={name}", f"account={account}", *_of(cluster)]
        return [["delete", "user", "where", *where]] if there else []
    return [["delete", "user", "where", f"name={name}", *_of(cluster)]] if name in users else []


def _of(cluster: str) -> list[str]:
    return [f"cluster={cluster}"] if cluster else []


def describe_user(users: Mapping[str, Row], accounts: Mapping[str, Row], name: str, account: str = "") -> Optional[Row]:
    """All that is known of a user, with what they may do in that account; None for a stranger."""
    known = known_user(name, users)
    there = accounts.get(account.lower(), {"users": {}})["users"].get(known)
    return None if known not in users or (account and there is None) else {**users[known], **(there or {})}


def _parents_first(accounts: Sequence[Row]) -> list[Row]:
    names = {account["name"] for account in accounts}
    done: list[Row] = []
    left = list(accounts)
    while left:
        placed = {account["name"] for account in done}
        ready = [account for account in left if account.get("parent") not in names - placed]
        if not ready:
            raise ValueError(f"slurm_accounts: {', '.join(a['name'] for a in left)} are each other's parents")
        done += ready
        left = [account for account in left if account not in ready]
    return done
