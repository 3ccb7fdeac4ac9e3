# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pairs of nodes say of the leaf switches above them."""

from __future__ import annotations

from collections.abc import Iterable

Meeting = tuple[str, str, bool]  # leaf of one node, leaf of the other, whether the pair was good


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
