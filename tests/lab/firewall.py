# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firewall rules that netavark leaves behind, removed without touching anybody else's."""

from __future__ import annotations

import re
import shlex
import subprocess

TABLES = ("filter", "nat")
NFT_TABLE = ("inet", "netavark")
RULE = r"^\t\t(?!type )\S"  # a rule, or a chain's line that is no declaration


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


def nft_deletions(listed: str, subnet: str) -> list[list[str]]:
    """nft arguments that remove what belongs to a subnet: rules, then chains. `listed` is nft -a list table …"""
    mark = subnet.replace(".", "_").replace("/", "_nm")  # as in the chain's name
    rules, chains, chain = [], [], ""
    for line in listed.splitlines():
        words = line.split()
        handle = line.rpartition("# handle ")[2]
        if words[:1] == ["chain"]:
            chain = words[1]
            if mark in chain:
                chains.append(chain)
        elif (subnet in words or mark in line or chain in chains) and handle.isdigit():
            rules.append(["delete", "rule", *NFT_TABLE, chain, "handle", handle])
    return [*rules, *(["delete", "chain", *NFT_TABLE, chain] for chain in chains)]


def drop(subnet: str | None) -> None:
    """Remove the rules of one subnet (or of every one) that podman could not remove itself."""
    for table in TABLES:
        for words in deletions(_output("iptables-save", "-t", table), subnet):
            _output("iptables", "-t", table, *words)
    if subnet:
        for words in nft_deletions(_output("nft", "-a", "list", "table", *NFT_TABLE), subnet):
            _output("nft", *words)


def restore(before: dict[str, list[str]]) -> None:
    """Remove netavark's frame, unless it was there before or another podman uses it by now."""
    if not before["chains"] and "-A NETAVARK_FORWARD" not in _output("iptables-save", "-t", "filter"):
        drop(None)
    for family, name in (("ip", "filter"), ("ip", "nat"), NFT_TABLE):
        if f"table {family} {name}" not in before["tables"]:
            body = _output("nft", "list", "table", family, name)
            used = "chain nv_" in body if name == "netavark" else re.search(RULE, body, re.MULTILINE)
            if body and not used:
                _output("nft", "delete", "table", family, name)
