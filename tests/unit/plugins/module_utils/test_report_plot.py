# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots of the acceptance report: what is drawn, and what is refused."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_stages, _report_plot

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
LINES: dict[str, Any] = {
    "kind": "lines",
    "title": "Throughput <by ranks>",
    "series": {"measured": [[1, 10.0], [4, 30.0]], "ideal": [[1, 10.0], [4, 40.0]]},
}
BARS: dict[str, Any] = {"kind": "bars", "title": "Steps", "parts": ["computing", "data"], "bars": [["n1", 3.0, 1.0]]}


def svg(plot: dict[str, Any]) -> ET.Element:
    return ET.fromstring(_report_plot.draw(plot))


def test_points_lie_where_their_numbers_say() -> None:
    drawn = svg(LINES)
    dots = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in drawn.iter("circle")]
    assert len(dots) == 2, "the first line alone has dots"
    bottom = _report_plot.HEIGHT - _report_plot.BOTTOM
    assert (bottom - dots[0][1]) * 3 == pytest.approx(bottom - dots[1][1], abs=0.5)
    assert len(list(drawn.iter("polyline"))) == 2


def test_bars_are_stacked_in_proportion_and_cut_to_the_longest() -> None:
    wide = [float(box.get("width", 0)) for box in svg(BARS).iter("rect")]
    assert wide[0] == pytest.approx(3 * wide[1], abs=0.5)
    many = {**BARS, "bars": [[f"rank {number}", float(number), 0.0] for number in range(1, 200)]}
    drawn = svg(many)
    assert len(list(drawn.iter("rect"))) == 2 * _report_plot.MOST_BARS
    assert "rank 199" in ET.tostring(drawn, encoding="unicode")


@pytest.mark.parametrize(
    ("plot", "words"),
    [
        ({"kind": "pie"}, "expected lines or bars"),
        ({**LINES, "series": {"a": [[1, "2"]]}}, "points"),
        ({**BARS, "bars": [["n1", 1.0]]}, "a value for each of parts"),
    ],
)
def test_what_cannot_be_drawn_is_refused(plot: dict[str, Any], words: str) -> None:
    assert words in _report_plot.problem(plot)
    assert not _report_plot.problem(LINES)
    assert not _report_plot.problem(BARS)


def test_the_page_shows_a_stage_s_plots() -> None:
    when = "2026-11-30T03:00:00Z"
    stage = _gate_stages.stage("training", "", [_gate_stages.check("DDP", ["n1"], "pass", "")])
    stage["plots"] = [LINES, BARS]
    report = _gate_stages.add(_gate_stages.empty(when), stage, when)
    jsonschema.validate(report, SCHEMA)
    page = _gate_html.page(report)
    assert "Throughput &lt;by ranks&gt;" in page
    assert page.count("<figure>") == 2
