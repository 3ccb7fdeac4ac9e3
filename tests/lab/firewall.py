# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firewall rules that netavark leaves behind, removed without touching anybody else's."""

from __future__ import annotations

import re
import shlex
import subprocess

TABLES = ("filter", "nat")


def _output(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def snapshot() -> dict[str, list[str]]:
    """What is there before the first lab: nftables' tables and netavark's chains."""
    chains = [chain for table in TABLES for chain in netavark_chains(_output("iptables-save", "-t", table))]
    return {"tables": _output("nft", "list", "tables").splitlines(), "chains": chains}


def netavark_chains(saved: str) -> list[str]:
    """Names of netavark's own chains in iptables-save output."""
    return re.findall(r"^:(NETAVARK\S*)", saved, re.MULTILINE)


def deletions(saved: str, subnet: str | None) -> list[list[str]]:
    """iptables arguments that remove what belongs to a subnet, or with None all that netavark made.

    Jumps to a network's chain go before the chain. A network's chain is one that speaks of its subnet.
    """
    rules = [shlex.split(line) for line in saved.splitlines() if line.startswith("-A ")]
    mine = {chain for chain in netavark_chains(saved) if subnet is None}
    if subnet is not None:
        mine = {rule[1] for rule in rules if subnet in rule and rule[1] in netavark_chains(saved)}
        mine -= {chain for chain in mine if chain == "NETAVARK_FORWARD" or chain.startswith("NETAVARK-HOSTPORT")}
    removed = [["-D", *rule[1:]] for rule in rules if subnet in rule or mine.intersection(rule[2:])]
    return [*removed, *(["-F", chain] for chain in sorted(mine)), *(["-X", chain] for chain in sorted(mine))]


def drop(subnet: str | None) -> None:
    """Remove the rules of one subnet (or of every one) that podman could not remove itself."""
    for table in TABLES:
        for words in deletions(_output("iptables-save", "-t", table), subnet):
            subprocess.run(["iptables", "-t", table, *words], check=False, capture_output=True)


def restore(before: dict[str, list[str]]) -> None:
    """Remove netavark's frame, unless it was there before or another podman uses it by now."""
    if before["chains"] or "-A NETAVARK_FORWARD" in _output("iptables-save", "-t", "filter"):
        return
    drop(None)
    for line in _output("nft", "list", "tables").splitlines():
        table = line.split()[1:]
        ours = line in ("table ip filter", "table ip nat", "table inet netavark") and line not in before["tables"]
        if ours and (table[1] == "netavark" or not re.search(r"^\s+(?!chain|type|})\S", _body(table), re.MULTILINE)):
            subprocess.run(["nft", "delete", "table", *table], check=False, capture_output=True)


def _body(table: list[str]) -> str:
    return "\n".join(_output("nft", "list", "table", *table).splitlines()[1:])
