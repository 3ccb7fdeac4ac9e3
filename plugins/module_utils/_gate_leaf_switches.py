# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leaf switches: which node is below which, as Slurm knows it, and what pairs of nodes say of them."""

from __future__ import annotations

from collections.abc import Iterable

# Switches of the lowest level, or blocks, of Slurm's topology, a line a node.
ASK = r"""
scontrol show topology 2>/dev/null |
  sed -nE 's/^(SwitchName=([^ ]+) Level=0|BlockName=([^ ]+)) .*Nodes=([^ ]+).*/\2\3 \4/p' |
  while read -r leaf nodes; do scontrol show hostnames "$nodes" | sed "s|^|LEAF $leaf |"; done
"""
Meeting = tuple[str, str, bool]  # leaf of one node, leaf of the other, whether the pair was good


def known(text: str) -> dict[str, str]:
    """From what Slurm said to the leaf of each of its nodes. One leaf for all tells nothing."""
    words = [line.split() for line in text.splitlines() if line.startswith("LEAF ")]
    found = {parts[2]: parts[1] for parts in words if len(parts) == 3}
    return found if len(set(found.values())) > 1 else {}


def bad_between(meetings: Iterable[Meeting]) -> set[frozenset[str]]:
    """Pairs of leaves between which at least two pairs of nodes ran, and none was good."""
    seen: dict[frozenset[str], list[bool]] = {}
    for one, other, good in meetings:
        if one != other:
            seen.setdefault(frozenset((one, other)), []).append(good)
    return {leaves for leaves, outcomes in seen.items() if len(outcomes) > 1 and not any(outcomes)}


def cut_off(meetings: list[Meeting]) -> list[str]:
    """Leaves with a good pair inside, and two at least to other leaves, of which none is good."""
    inside: set[str] = set()
    outside: dict[str, list[bool]] = {}
    for one, other, good in meetings:
        if one == other and good:
            inside.add(one)
        for leaf in {one, other} if one != other else set():
            outside.setdefault(leaf, []).append(good)
    return sorted(leaf for leaf in inside if len(outside.get(leaf, [])) > 1 and not any(outside[leaf]))


def bad_leaves(cleared: list[Meeting], lost: list[str]) -> list[tuple[str, str, int]]:
    """Bad paths: (leaf, leaf, bad pairs) or, for leaves in `lost`, (leaf, "", bad pairs).

    `cleared` are the meetings of nodes that are good with others: a bad node is no bad path.
    """
    found = [(leaf, "", sum(leaf in (one, other) and one != other for one, other, _good in cleared)) for leaf in lost]
    for leaves in sorted(bad_between(cleared), key=sorted):
        one, other = sorted(leaves)
        if not leaves & set(lost):
            found.append((one, other, sum({a, b} == leaves for a, b, _good in cleared)))
    return found
