# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the hosts of a fleet: who differs from the majority of its kind, what is wrong. Private to this collection.

What hosts sent is not trusted: texts are cleaned and cut, and what has another shape than it should is ignored. All
steps are linear in the number of hosts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ._audit_look import ITEMS, NONE
from ._node_health import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA_VERSION = 1
LONGEST_TEXT = 300
MOST_PROBLEMS = 100  # of one host
OTHER = "other"  # the kind of hosts that are in none of the groups
_CODE = re.compile(r"[a-z][a-z_]{1,39}")


def clean(value: Any, longest: int = LONGEST_TEXT) -> str:
    """One printable line: no control characters, no escapes of terminals, no marks that turn the writing direction."""
    if not isinstance(value, str):
        return ""
    text = "".join(char if char.isprintable() else " " for char in value[: 4 * longest])
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"


def natural(name: str) -> list[Any]:
    """Sorts n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def refused(words: Iterable[str]) -> list[str]:
    """Why words of `ignore` cannot be meant: they name neither an item nor a problem."""
    codes = {*SEVERITIES, "no_gpu"}
    return [
        f"'{word}' is neither an item ({', '.join(ITEMS)}) nor a problem ({', '.join(sorted(codes))})"
        for word in words
        if word.split(" ", 1)[0] not in {*ITEMS, *codes}
    ]


def _problems(found: Any) -> list[dict[str, Any]]:
    taken = []
    for problem in found[:MOST_PROBLEMS] if isinstance(found, list) else []:
        if isinstance(problem, dict) and _CODE.fullmatch(clean(problem.get("code"))):
            taken.append({key: clean(problem.get(key)) for key in ("code", "device", "detail")})
    return taken


def take(look: Any) -> dict[str, Any]:
    """A host's part out of the registered result of audit_info: {versions, problems}, or {reason, unreachable}."""
    result = look if isinstance(look, dict) else {}
    audit = result.get("audit")
    if result.get("unreachable") or not isinstance(audit, dict):
        said = clean(result.get("msg")) or clean(result.get("module_stderr")) or "gave no answer"
        return {"reason": said.removeprefix("Task failed: "), "unreachable": bool(result.get("unreachable"))}
    told = audit.get("versions")
    told = told if isinstance(told, dict) else {}
    return {
        "versions": {item: clean(told.get(item)) or None for item in ITEMS},
        "problems": _problems(audit.get("problems")),
    }


def _expect_gpus(host: dict[str, Any], wanted: bool) -> None:
    """A host that should have GPUs and has none is sick; one that need not have them needs no driver either."""
    versions = host["versions"]
    if wanted and versions["gpu_boards"] == NONE and versions["gpus"] in {None, NONE}:
        host["problems"].insert(0, {"code": "no_gpu", "device": "", "detail": "PCI shows no NVIDIA GPU"})
    if not wanted:
        host["problems"] = [problem for problem in host["problems"] if problem["code"] != "no_driver"]


def compare(versions: Mapping[str, str | None]) -> dict[str, Any]:
    """Who differs, by {host: text}.

    `usual` is what more than half of those have of whom it is known. It is null where no text has such a majority, and
    then all are listed in `differing`: [{value, hosts}], most hosts first. Who is `unknown` has no vote.
    """
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for host, text in versions.items():
        if text is not None:
            hosts_of[text].append(host)
    groups = sorted(hosts_of.items(), key=lambda group: (-len(group[1]), group[0]))
    known = sum(map(len, hosts_of.values()))
    usual = groups[0][0] if groups and 2 * len(groups[0][1]) > known else None
    return {
        "usual": usual,
        "usual_hosts": len(hosts_of[usual]) if usual is not None else 0,
        "differing": [{"value": text, "hosts": hosts} for text, hosts in groups if text != usual],
        "unknown": [host for host, text in versions.items() if text is None],
    }


def _is_ignored(problem: dict[str, Any], ignore: set[str]) -> bool:
    return problem["code"] in ignore or f"{problem['code']} {problem['device']}" in ignore


def _health(hosts: dict[str, Any], ignore: set[str]) -> tuple[list[dict[str, Any]], int]:
    """Equal problems once with their hosts, most hosts first; and how many were ignored, which are marked so."""
    names: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    ignored = 0
    for name, host in hosts.items():
        for problem in host["problems"]:
            problem["ignored"] = _is_ignored(problem, ignore)
            if problem["ignored"]:
                ignored += 1
            else:
                names[problem["code"], problem["device"], problem["detail"]].append(name)
    groups = sorted(names.items(), key=lambda group: -len(group[1]))
    return [
        {"code": code, "device": device, "detail": detail, "hosts": list(dict.fromkeys(found))}
        for (code, device, detail), found in groups
    ], ignored


def _plural(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def summary(counts: dict[str, int]) -> str:
    """The verdict in one line."""
    parts = [_plural(counts["hosts"], "host", "hosts")]
    if counts["absent"]:
        parts.append(f"{counts['absent']:,} without an answer")
    if counts["answered"]:
        parts.append(f"{counts['unhealthy']:,} with problems" if counts["unhealthy"] else "no problems")
        parts.append(
            f"{_plural(counts['drift'], 'item differs', 'items differ')} on "
            f"{_plural(counts['differing'], 'host', 'hosts')}"
            if counts["drift"]
            else "no drift"
        )
    return ", ".join(parts)


def document(
    looks: Mapping[str, Any], kinds: Mapping[str, str], gpu_hosts: Iterable[str], ignore: Iterable[str], made: str
) -> dict[str, Any]:
    """The report as audit.json holds it.

    `looks`: by host, the registered result of audit_info; `kinds`: by host, what it is compared within, in the order in
    which kinds are shown; `gpu_hosts`: who should have GPUs; `ignore`: items and problem codes, or "code device".
    """
    wanted, dropped = set(gpu_hosts), set(ignore)
    hosts: dict[str, Any] = {}
    absent: list[dict[str, Any]] = []
    members: dict[str, list[str]] = {kind: [] for kind in dict.fromkeys(kinds.values())}
    for name in sorted(looks, key=natural):
        host = take(looks[name])
        if "reason" in host:
            absent.append({"host": name, **host})
            continue
        _expect_gpus(host, name in wanted)
        kind = kinds.get(name, OTHER)
        hosts[name] = {"kind": kind, **host}
        members.setdefault(kind, []).append(name)
    health, ignored = _health(hosts, dropped)
    compared: list[dict[str, Any]] = []
    for kind, names in members.items():
        items = {
            item: compare({name: hosts[name]["versions"][item] for name in names})
            for item in ITEMS
            if item not in dropped
        }
        compared.append({"kind": kind, "hosts": len(names), "items": items})
    differing = [group for kind in compared for item in kind["items"].values() for group in item["differing"]]
    counts = {
        "hosts": len(looks),
        "answered": len(hosts),
        "absent": len(absent),
        "unhealthy": len({name for problem in health for name in problem["hosts"]}),
        "drift": len({item for kind in compared for item, found in kind["items"].items() if found["differing"]}),
        "differing": len({name for group in differing for name in group["hosts"]}),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "made": made,
        "verdict": "findings" if counts["unhealthy"] or counts["drift"] or counts["absent"] else "clean",
        "summary": summary(counts),
        "counts": counts,
        "health": health,
        "kinds": [kind for kind in compared if kind["hosts"]],
        "absent": absent,
        "ignored": {"words": sorted(dropped), "problems": ignored},
        "hosts": hosts,
    }
