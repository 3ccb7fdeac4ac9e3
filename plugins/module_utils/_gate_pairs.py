# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is guilty when the whole cluster is too slow: which pairs to run next, and what their outcomes mean.

Three rounds, whatever the number of nodes: disjoint pairs across leaf switches in parallel, where a good pair clears
both nodes; each suspect with a cleared node on another leaf switch; once more with yet another one, while pairs whose
two nodes were both cleared since run again. All bad: the node. The same pair bad twice between two good nodes: the
path. The last round, which accuses, takes the median of more launches than the others.

Leaf switches are nobody's fault among nodes: where the first round cleared nobody, the second meets neighbours, and a
leaf whose nodes are all under suspicion meets itself in the last. Nodes that are good among themselves and bad with all
others are behind a bad path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ansible_collections.gpuops.cluster.plugins.module_utils._gate_leaf_switches import (
    Meeting,
    bad_between,
    bad_leaves,
    cut_off,
)

Pair = tuple[str, str]
ROUNDS = 3


def launches_in(round_number: int, usual: int) -> int:
    """How many launches a pair's median is of: the last round turns suspicion into accusation, so it takes more."""
    return 2 * usual - 1 if round_number == ROUNDS else usual


class Isolation:
    """Ask `next_round()` for waves of disjoint pairs, tell `record()` how each ended, until there is no next round."""

    def __init__(self, nodes: Iterable[str], leaves: Optional[dict[str, str]] = None) -> None:
        """`leaves` names the leaf switch of a node where it is known."""
        self.named = bool(leaves)
        self.leaves = leaves or {}
        self.nodes = sorted(nodes, key=lambda node: self.leaves.get(node, ""))
        self.round = 0
        self.cleared: set[str] = set()
        self.met: dict[str, list[tuple[str, bool]]] = {node: [] for node in self.nodes}
        self.first: dict[Pair, bool] = {}
        self.again: dict[Pair, bool] = {}

    def suspects(self) -> list[str]:
        return [node for node in self.nodes if node not in self.cleared]

    def next_round(self) -> list[list[Pair]]:
        """Waves that run one after the other; the pairs of a wave share no node. Empty: nothing more to learn."""
        self.round += 1
        if self.round == 1:
            half = len(self.nodes) // 2
            return [list(zip(self.nodes[:half], self.nodes[half : 2 * half]))] if half else []
        if self.round <= ROUNDS and not self.cleared:
            half = len(self.nodes) // 2
            if not self.leaves:  # the halves that met in vain stand for the leaves that are not known
                self.leaves = {node: ("first", "second")[i >= half] for i, node in enumerate(self.nodes)}
            pairs = self._neighbours(self.nodes)
            return [pairs] if pairs else []
        if self.round > ROUNDS or not self.cleared or not (self.suspects() or self._retest()):
            return []
        return self._waves()

    def _neighbours(self, nodes: list[str]) -> list[Pair]:
        """Disjoint pairs of nodes that have not met, on the same leaf where possible."""
        pairs: list[Pair] = []
        left = list(nodes)
        while left:
            node = left.pop(0)
            met = {other for other, _good in self.met[node]}
            fresh = [other for other in left[:32] if other not in met]
            same = [other for other in fresh if self.leaves.get(other, "") == self.leaves.get(node, "")]
            if fresh:
                partner = (same or fresh)[0]
                left.remove(partner)
                pairs.append((node, partner))
        return pairs

    def _lost_leaves(self) -> dict[str, list[str]]:
        """Leaves whose nodes, three at least, are all under suspicion, in the last round."""
        members: dict[str, list[str]] = {}
        for node in self.nodes if self.round == ROUNDS and self.leaves else []:
            members.setdefault(self.leaves.get(node, ""), []).append(node)
        return {
            leaf: nodes
            for leaf, nodes in members.items()
            if leaf and len(nodes) > 2 and len(members) > 1 and not self.cleared & set(nodes)
        }

    def _retest(self) -> list[Pair]:
        """Pairs that failed at first although both nodes were cleared since, in the last round."""
        if self.round < ROUNDS:
            return []
        return [pair for pair, good in self.first.items() if not good and self.cleared.issuperset(pair)]

    def _waves(self) -> list[list[Pair]]:
        retest = self._retest()
        busy = {node for pair in retest for node in pair}
        lost = self._lost_leaves()
        own = [pair for nodes in lost.values() for pair in self._neighbours(nodes)]
        wave = retest + own
        waves = [wave] if wave else []
        left = [node for node in self.suspects() if self.leaves.get(node) not in lost]
        avoid = bad_between(self.meetings())
        first = True
        while left:
            free = [node for node in self.nodes if node in self.cleared and not (first and node in busy)]
            pairs, left = self._match(left, free, avoid)
            if not pairs and not first:
                break
            if first and wave:
                wave.extend(pairs)
            elif pairs:
                waves.append(pairs)
            first = False
        if self.round == ROUNDS and not self.named and len(self.suspects()) > 2:
            waves.append(self._neighbours(self.suspects()))
        return waves

    def _match(self, suspects: list[str], free: list[str], avoid: set[frozenset[str]]) -> tuple[list[Pair], list[str]]:
        """A partner for each suspect: not met before, on another leaf if possible, not behind a path that may be bad.

        Returns pairs and who waits.
        """
        by_leaf: dict[str, list[str]] = {}
        for node in reversed(free):
            by_leaf.setdefault(self.leaves.get(node, ""), []).append(node)
        pairs, waiting = [], []
        for suspect in suspects:
            met = {other for other, _good in self.met[suspect]}
            own = self.leaves.get(suspect, "")
            partner = None
            leaves = [leaf for leaf in by_leaf if frozenset((own, leaf)) not in avoid]
            for leaf in sorted(leaves, key=lambda name: (name == own, -len(by_leaf[name]))):
                partner = next((node for node in reversed(by_leaf[leaf]) if node not in met), None)
                if partner is not None:
                    by_leaf[leaf].remove(partner)
                    pairs.append((suspect, partner))
                    break
            if partner is None:
                waiting.append(suspect)
        return pairs, waiting

    def record(self, outcomes: dict[Pair, bool]) -> None:
        """True: the pair reached its floor with right data."""
        for (a, b), good in outcomes.items():
            if (a, b) in self.first:
                self.again[(a, b)] = good
            elif self.round == 1:
                self.first[(a, b)] = good
            self.met[a].append((b, good))
            self.met[b].append((a, good))
        before = set(self.cleared)
        for pair, good in outcomes.items():
            if good:
                self.cleared.update(pair)
        apart = {node for pair, good in outcomes.items() if good and not before & set(pair) for node in pair}
        if self.round == ROUNDS and not self.named and apart:  # a leaf that nobody told us of
            self.leaves = {node: "apart" if node in apart else "rest" for node in self.nodes}

    def meetings(self, cleared: bool = False) -> list[Meeting]:
        """Every pair that ran, with its leaves; with `cleared` only those of two nodes that are good with others."""
        return [
            (self.leaves.get(node, ""), self.leaves.get(other, ""), good)
            for node, meetings in self.met.items()
            for other, good in meetings
            if node < other and (not cleared or {node, other} <= self.cleared)
        ]

    def guilty_leaves(self) -> list[tuple[list[str], list[str], int]]:
        """Bad paths between groups of good nodes: (leaf of one end, of the other, bad pairs between them).

        An empty other end means all other leaves. Where leaves are not known, the nodes of each end stand for them.
        """
        if not self.leaves:
            return []
        found = bad_leaves(self.meetings(cleared=True), self._cut_off())
        return [(self._end(one), self._end(other), count) for one, other, count in found]

    def _cut_off(self) -> list[str]:
        """Leaves whose nodes are good among themselves and bad with every other leaf; only where there are three."""
        return cut_off(self.meetings()) if len(set(self.leaves.values())) > 2 else []

    def _end(self, leaf: str) -> list[str]:
        if self.named or not leaf:
            return [leaf] if leaf else []
        return [node for node in self.nodes if self.leaves.get(node) == leaf]

    def guilty_nodes(self) -> list[str]:
        """Nodes that failed with every partner, two of them cleared ones (one, where only one is known to be good)."""
        guilty = []
        lost = self._cut_off()
        for node in [node for node in self.suspects() if self.leaves.get(node) not in lost]:
            against_good = [other for other, _good in self.met[node] if other in self.cleared]
            if len(against_good) >= min(2, len(self.cleared)) and against_good:
                guilty.append(node)
        return guilty

    def guilty_paths(self) -> list[Pair]:
        """Pairs that failed twice although each of their nodes is good with others, and their leaves are, too."""
        lost = self._cut_off()
        between = {frozenset((one, other)) for one, other, _count in bad_leaves(self.meetings(cleared=True), lost)}
        bad = [pair for pair, good in self.again.items() if not good]
        return [
            pair
            for pair in bad
            if frozenset(self.leaves.get(node, "") for node in pair) not in between
            and not {self.leaves.get(node) for node in pair} & set(lost)
        ]

    def undecided(self) -> list[str]:
        """Suspects that nothing good was left to test against."""
        guilty = set(self.guilty_nodes())
        return [node for node in self.suspects() if node not in guilty]


def round_robin(count: int) -> list[list[tuple[int, int]]]:
    """Every pair of `count` GPUs once, in rounds of disjoint pairs (7 rounds for 8), by the circle method."""
    seats: list[Optional[int]] = [*range(count), *([None] if count % 2 else [])]
    rounds = []
    for _turn in range(len(seats) - 1):
        half = len(seats) // 2
        met = zip(seats[:half], reversed(seats[half:]))
        rounds.append(sorted((min(a, b), max(a, b)) for a, b in met if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def bad_pairs(
    values: dict[tuple[int, int], Optional[float]], labels: list[list[str]], floor: float
) -> set[tuple[int, int]]:
    """From GB/s by GPU pair (None: crashed, hung or wrong) to the pairs below `floor` times the best of their kind.

    Pairs with the same label of the topology matrix (NV18, PIX, …) are of a kind; without labels, all are.
    """

    def label(pair: tuple[int, int]) -> str:
        return str(labels[pair[0]][pair[1]]) if labels else ""

    best: dict[str, float] = {}
    for pair, value in values.items():
        best[label(pair)] = max(best.get(label(pair), 0.0), value or 0.0)
    return {pair for pair, value in values.items() if value is None or value < floor * best[label(pair)]}


def guilty_gpus(
    values: dict[tuple[int, int], Optional[float]], labels: list[list[str]], floor: float
) -> tuple[list[int], list[tuple[int, int]]]:
    """GPUs whose every pair is bad, and bad pairs between GPUs that are good with others. Nobody if all pairs are."""
    bad = bad_pairs(values, labels, floor)
    if len(bad) == len(values):
        return [], []
    everyone = {gpu for pair in values for gpu in pair}
    gpus = sorted(gpu for gpu in everyone if all(pair in bad for pair in values if gpu in pair))
    return gpus, sorted(pair for pair in bad if not set(pair) & set(gpus))
