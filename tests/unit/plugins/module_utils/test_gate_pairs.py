# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The isolation scheme on simulated clusters: nobody bad is missed, hardly anybody good is accused."""

from __future__ import annotations

import random
import statistics
import time
from typing import Callable, Optional

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_pairs import (
    ROUNDS,
    Isolation,
    Pair,
    guilty_gpus,
    launches_in,
    round_robin,
)


def cluster(count: int, per_leaf: int = 32) -> tuple[list[str], dict[str, str]]:
    nodes = [f"n{i:05d}" for i in range(count)]
    return nodes, {node: f"leaf{i // per_leaf:03d}" for i, node in enumerate(nodes)}


def isolate(
    nodes: list[str], leaves: Optional[dict[str, str]], good: Callable[[Pair, int], bool]
) -> tuple[Isolation, list[int]]:
    """Run the scheme against `good`; returns it and the waves that each round took."""
    scheme = Isolation(nodes, leaves)
    waves_of = []
    while waves := scheme.next_round():
        waves_of.append(len(waves))
        outcomes: dict[Pair, bool] = {}
        for wave in waves:
            members = [node for pair in wave for node in pair]
            assert len(members) == len(set(members)), "the pairs of a wave share no node"
            outcomes.update({pair: good(pair, launches_in(scheme.round, 3)) for pair in wave})
        scheme.record(outcomes)
    return scheme, waves_of


def noisy(bad: set[str], rng: random.Random) -> Callable[[Pair, int], bool]:
    """Median of launches with 1.5 % noise and 5 % chance of a 25 % dip; a bad node reaches 70 %."""

    def good(pair: Pair, launches: int) -> bool:
        base = 0.7 if bad & set(pair) else 1.0
        values = [base * rng.gauss(1, 0.015) * (0.75 if rng.random() < 0.05 else 1) for _unused in range(launches)]
        return statistics.median(values) >= 0.9

    return good


def test_many_seeds_of_1024_nodes() -> None:
    nodes, leaves = cluster(1024)
    false, runs = 0, 100
    for seed in range(runs):
        rng = random.Random(seed)
        bad = set(rng.sample(nodes, 64))
        scheme, waves = isolate(nodes, leaves, noisy(bad, rng))
        guilty = set(scheme.guilty_nodes())
        assert bad <= guilty, "no bad node is missed"
        false += len(guilty - bad) + len(scheme.guilty_paths()) + len(scheme.guilty_leaves())
        assert len(waves) <= ROUNDS
        assert max(waves) == 1, "one wave a round while good nodes outnumber suspects"
    assert false / runs < 0.05


def test_planning_10000_nodes_is_quick() -> None:
    nodes, leaves = cluster(10000)
    rng = random.Random(1)
    bad = set(rng.sample(nodes, 600))
    began = time.process_time()
    scheme, _waves = isolate(nodes, leaves, lambda pair, _n: not bad & set(pair))
    assert set(scheme.guilty_nodes()) == bad
    assert time.process_time() - began < 2


@pytest.mark.parametrize("count", [3, 4, 5, 8, 9, 31])
def test_one_bad_node_of_few(count: int) -> None:
    nodes, _leaves = cluster(count)
    for victim in nodes:

        def good(pair: Pair, _launches: int, victim: str = victim) -> bool:
            return victim not in pair

        scheme, _waves = isolate(nodes, None, good)
        assert scheme.guilty_nodes() == [victim]
        assert scheme.undecided() == []


def test_a_bad_path_is_no_bad_node() -> None:
    nodes, leaves = cluster(64, per_leaf=8)
    a, b = Isolation(nodes, leaves).next_round()[0][3]
    scheme, _waves = isolate(nodes, leaves, lambda pair, _n: set(pair) != {a, b})
    assert (scheme.guilty_nodes(), scheme.guilty_leaves()) == ([], [])
    assert scheme.guilty_paths() == [(a, b)]


@pytest.mark.parametrize("bad_nodes", [0, 1, 3])
def test_a_bad_path_between_two_leaves_of_many(bad_nodes: int) -> None:
    nodes, leaves = cluster(64, per_leaf=8)
    a, b = Isolation(nodes, leaves).next_round()[0][3]
    slow = {leaves[a], leaves[b]}
    bad = set(random.Random(bad_nodes).sample(nodes, bad_nodes))
    scheme, waves = isolate(
        nodes, leaves, lambda pair, _n: {leaves[node] for node in pair} != slow and not bad & set(pair)
    )
    assert set(scheme.guilty_nodes()) == bad
    assert [(set(one + other)) for one, other, _count in scheme.guilty_leaves()] == [slow]
    assert scheme.guilty_paths() == []
    assert len(waves) <= ROUNDS


@pytest.mark.parametrize("count", [4, 6, 8, 9, 64, 1024])
@pytest.mark.parametrize("named", [True, False])
def test_a_bad_path_between_the_only_two_leaves(count: int, named: bool) -> None:
    """The first round clears nobody then."""
    nodes, leaves = cluster(count, per_leaf=(count + 1) // 2)
    scheme, waves = isolate(nodes, leaves if named else None, lambda pair, _n: leaves[pair[0]] == leaves[pair[1]])
    assert scheme.guilty_nodes() == []
    ends = [(one, other) for one, other, _count in scheme.guilty_leaves()]
    if named:
        assert ends == [(["leaf000"], ["leaf001"])]
    elif count % 2 == 0:
        assert ends == [(nodes[: count // 2], nodes[count // 2 :])]
    else:
        assert [set(one) for one, _other in ends] == [set(nodes[count // 2 + 1 :])]
    assert scheme.guilty_paths() == [] or not named
    assert len(waves) <= ROUNDS


@pytest.mark.parametrize("per_leaf", [4, 5, 8])
def test_a_leaf_that_is_cut_off_is_no_guilt_of_its_nodes(per_leaf: int) -> None:
    nodes, leaves = cluster(6 * per_leaf, per_leaf)
    victim = "leaf002"
    scheme, _waves = isolate(nodes, leaves, lambda pair, _n: (leaves[pair[0]] == victim) == (leaves[pair[1]] == victim))
    assert scheme.guilty_nodes() == []
    assert [(one, other) for one, other, _count in scheme.guilty_leaves()] == [([victim], [])]
    assert scheme.guilty_paths() == []


def test_a_leaf_full_of_bad_nodes_is_guilty_node_by_node() -> None:
    nodes, leaves = cluster(32, per_leaf=4)
    bad = {node for node in nodes if leaves[node] == "leaf002"}
    scheme, _waves = isolate(nodes, leaves, lambda pair, _n: not bad & set(pair))
    assert set(scheme.guilty_nodes()) == bad
    assert scheme.guilty_leaves() == []


@pytest.mark.parametrize("victim", range(8))
def test_one_bad_node_behind_a_bad_path(victim: int) -> None:
    """Two leaves, a bad path between, and a bad node: nobody good is accused."""
    nodes, leaves = cluster(8, per_leaf=4)

    def good(pair: Pair, _launches: int) -> bool:
        return leaves[pair[0]] == leaves[pair[1]] and nodes[victim] not in pair

    scheme, _waves = isolate(nodes, leaves, good)
    assert set(scheme.guilty_nodes()) <= {nodes[victim]}
    assert scheme.guilty_leaves()


def test_pairs_cross_leaves() -> None:
    nodes, leaves = cluster(128)
    assert all(leaves[a] != leaves[b] for a, b in Isolation(nodes, leaves).next_round()[0])


def test_two_nodes_cannot_be_told_apart() -> None:
    scheme, waves = isolate(["a", "b"], None, lambda pair, _n: False)
    assert (waves, scheme.guilty_nodes(), scheme.undecided()) == ([1], [], ["a", "b"])


def test_mostly_bad_needs_more_waves_but_no_more_rounds() -> None:
    nodes, _leaves = cluster(16)
    bad = set(nodes[:6]) | set(nodes[8:13])
    scheme, waves = isolate(nodes, None, lambda pair, _n: not bad & set(pair))
    assert set(scheme.guilty_nodes()) == bad
    assert len(waves) <= ROUNDS
    assert max(waves) > 1


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 16])
def test_round_robin_meets_everyone_once(count: int) -> None:
    rounds = round_robin(count)
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == [(a, b) for a in range(count) for b in range(a + 1, count)]
    assert all(len({gpu for pair in pairs for gpu in pair}) == 2 * len(pairs) for pairs in rounds)


def test_guilty_gpu_and_guilty_link() -> None:
    pairs = [pair for pairs in round_robin(8) for pair in pairs]
    labels = [["NV18"] * 8 for _unused in range(8)]
    assert guilty_gpus(dict.fromkeys(pairs, 360.0), labels, 0.9) == ([], [])
    assert guilty_gpus({p: 200.0 if 5 in p else 360.0 for p in pairs}, labels, 0.9) == ([5], [])
    assert guilty_gpus({p: None if p == (2, 6) else 360.0 for p in pairs}, labels, 0.9) == ([], [(2, 6)])


def test_slower_wires_are_compared_with_their_like() -> None:
    labels = [["X", "NV2", "NV1"], ["NV2", "X", "NV1"], ["NV1", "NV1", "X"]]
    assert guilty_gpus({(0, 1): 40.0, (0, 2): 20.0, (1, 2): 19.5}, labels, 0.9) == ([], [])
