# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How well and how fast the gate's isolation finds bad nodes: simulated clusters, seeded, printed as a table.

    python tests/benchmarks/isolation.py [runs]

A bad node reaches 70 % of the speed; every launch has 1.5 % noise and a 5 % chance of a 25 % dip; medians count.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".ansible/collections"))

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_pairs as pairing


def isolate(count: int, bad_count: int, seed: int) -> tuple[int, int, int, float]:
    """Bad nodes missed, good parts accused, rounds, and seconds of planning and decoding."""
    rng = random.Random(seed)
    nodes = [f"n{i:05d}" for i in range(count)]
    leaves = {node: f"leaf{i // 32}" for i, node in enumerate(nodes)}
    bad = set(rng.sample(nodes, bad_count))

    def good(pair: pairing.Pair, launches: int) -> bool:
        base = 0.7 if bad & set(pair) else 1.0
        values = [base * rng.gauss(1, 0.015) * (0.75 if rng.random() < 0.05 else 1) for _ in range(launches)]
        return statistics.median(values) >= 0.9

    scheme, spent, rounds = pairing.Isolation(nodes, leaves), 0.0, 0
    while True:
        began = time.process_time()
        waves = scheme.next_round()
        spent += time.process_time() - began
        if not waves:
            break
        rounds += 1
        launches = pairing.launches_in(scheme.round, 3)
        outcomes = {pair: good(pair, launches) for wave in waves for pair in wave}
        began = time.process_time()
        scheme.record(outcomes)
        spent += time.process_time() - began
    began = time.process_time()
    guilty = set(scheme.guilty_nodes())
    spent += time.process_time() - began
    return (
        len(bad - guilty),
        len(guilty - bad) + len(scheme.guilty_paths()) + len(scheme.guilty_leaves()),
        rounds,
        spent,
    )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"{'nodes':>6} {'bad':>5} {'runs':>5} {'missed':>7} {'false/run':>10} {'rounds':>7} {'planning s':>11}")
    for count, bad in ((8, 1), (64, 4), (1024, 64), (10000, 600)):
        few = max(3, runs // max(1, count // 1024))
        found = [isolate(count, bad, seed) for seed in range(few)]
        missed, false = sum(one[0] for one in found), sum(one[1] for one in found) / few
        rounds, slowest = max(one[2] for one in found), max(one[3] for one in found)
        print(f"{count:>6} {bad:>5} {few:>5} {missed:>7} {false:>10.3f} {rounds:>7} {slowest:>11.3f}")


if __name__ == "__main__":
    main()
