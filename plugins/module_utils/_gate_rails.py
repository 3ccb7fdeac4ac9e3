# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NIC of a slow group of nodes is slow: the same test over one rail at a time, all groups side by side.

Rails are held against each other and not against a figure, because a single NIC under all GPUs of a node reaches less
than its wire. Equal rails say nothing, and accuse none.
"""

from __future__ import annotations

from typing import Any, Optional

Values = dict[str, Optional[float]]  # GB/s by rail; None where it crashed, hung or moved wrong data


def bad_rails(values: Values, rates: dict[str, float], floor: float) -> list[str]:
    """Rails below `floor` of the best one, each in proportion to its rate. None if all are bad."""
    shares = {rail: (value or 0.0) / rates[rail] for rail, value in values.items()}
    best = max(shares.values(), default=0.0)
    bad = [rail for rail, share in shares.items() if values[rail] is None or share < floor * best]
    return bad if len(bad) < len(values) else []


class Rails:
    """`search` is the isolation that asks; its results and rounds grow by what is measured here."""

    def __init__(self, search: Any) -> None:
        self.search, self.gate = search, search.gate

    def common(self, names: list[str]) -> dict[str, float]:
        """GB/s of each RDMA device that all these nodes have and use."""
        rails = [self.gate.nodes[name]["capability"]["network"].get("rails") or {} for name in names]
        return {rail: rate for rail, rate in rails[0].items() if all(rail in other for other in rails)} if rails else {}

    def find(self, groups: dict[str, list[str]]) -> dict[str, list[str]]:
        """Bad rails of each group; groups share no node. What looks bad is measured again before it is named."""
        rates = {key: self.common(names) for key, names in groups.items()}
        groups = {key: names for key, names in groups.items() if len(rates[key]) > 1}
        values: dict[str, Values] = {key: {} for key in groups}
        self._measure(groups, {key: list(rates[key]) for key in groups}, 1, values)
        floor = self.gate.settings["floor"]
        slow = {key: bad_rails(values[key], rates[key], floor) for key in groups}
        self._measure(groups, slow, self.gate.settings["launches"], values)
        return {key: bad_rails(values[key], rates[key], floor) for key in groups}

    def _measure(
        self, groups: dict[str, list[str]], rails: dict[str, list[str]], launches: int, values: dict[str, Values]
    ) -> None:
        for step in range(max([len(some) for some in rails.values()], default=0)):
            turn = {key: some[step] for key, some in rails.items() if step < len(some)}
            tests = [
                {
                    "label": f"{key}-{rail}",
                    "names": groups[key],
                    "collective": "all_reduce",
                    "rail": rail,
                    "forced": {"NCCL_IB_HCA": f"={rail}"},
                }
                for key, rail in turn.items()
            ]
            self.search.rounds += 1
            results = self.gate.measure(f"isolation-{self.search.rounds}", tests, self._limits, launches)
            self.search.results += results
            for (key, rail), result in zip(turn.items(), results):
                values[key][rail] = result["median_gbps"] if result["status"] == "pass" else None

    def _limits(self, test: dict[str, Any]) -> dict[str, Any]:
        why = {"expected_gbps": None, "expected_why": "compared with the other rails of the same nodes"}
        limits: dict[str, Any] = self.gate.limits("pair", "all_reduce", test["names"])
        return {**limits, **why, "baseline_gbps": None, "max_cv": 1e9}
