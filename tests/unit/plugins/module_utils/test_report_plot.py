# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots of the acceptance report: what is drawn, and what is refused."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_stages, _report_html, _report_plot

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
LINES: dict[str, Any] = {
    "kind": "lines",
    "title": "Throughput <by ranks>",
    "series": {"measured": [[1, 10.0], [4, 30.0]], "ideal": [[1, 10.0], [4, 40.0]]},
}
BARS: dict[str, Any] = {"kind": "bars", "title": "Steps", "parts": ["computing", "data"], "bars": [["n1", 3.0, 1.0]]}


def svg(figure: str) -> ET.Element:
    """The drawing: what is no XML, or refers to what is not in it, is no part of a page."""
    root = ET.fromstring(figure.replace("&nbsp;", " "))
    names = [one.get("id") for one in root.iter() if one.get("id")]
    used = [one.get("href", "") for one in root.iter() if one.get("href")]
    assert {f"#{name}" for name in names} >= set(used)
    assert len(names) == len(set(names))
    return root


def texts(root: ET.Element) -> list[str]:
    return [str(one.text).strip() for one in root.iter("text")]


def tipped(root: ET.Element) -> list[tuple[ET.Element, ET.Element]]:
    """Parts that say something when the mouse rests on them: the words, and what is drawn."""
    return [(one[0], one[1]) for one in root.iter("g") if len(one) > 1 and one[0].tag == "title"]


def test_points_lie_where_their_numbers_say() -> None:
    drawn = svg(_report_plot.draw(LINES))
    dots = [(float(one.get("x", 0)), float(one.get("y", 0))) for one in drawn.iter("use")]
    colour = "stroke: var(--curve)"
    measured = next(one.get("d", "") for one in drawn.iter("path") if colour in one.get("style", ""))
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", measured)]
    assert set(points) <= set(dots), "the first line has dots"
    ideal = next(one for one in drawn.iter("path") if "stroke: var(--warn)" in one.get("style", ""))
    assert "stroke-dasharray" in ideal.get("style", "")
    end = re.findall(r"[ML] ([\d.]+) ([\d.]+)", ideal.get("d", ""))[-1]
    assert float(end[1]) < points[-1][1] < points[0][1], "ideal is above measured, and more is higher"
    assert {"1", "4", "10", "40"} <= set(texts(drawn))


def test_words_below_a_line_leave_room_for_one_another() -> None:
    many = {**LINES, "series": {"measured": [[2.0**power, 1.0] for power in range(11)]}}
    drawn = texts(svg(_report_plot.draw(many)))
    assert "1024" in drawn and "64" in drawn
    assert "2" not in drawn and "32" not in drawn


def test_bars_are_stacked_in_proportion_and_cut_to_the_longest() -> None:
    def wide(one: ET.Element) -> float:
        across = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", one.get("d", ""))]
        return max(across) - min(across)

    boxes = {tip.text: wide(box) for tip, box in tipped(svg(_report_plot.draw(BARS)))}
    assert boxes["n1: computing 3"] == pytest.approx(3 * boxes["n1: data 1"], abs=0.5)
    many = {**BARS, "bars": [[f"rank {number}", float(number), 0.0] for number in range(1, 200)]}
    drawn = svg(_report_plot.draw(many))
    assert len(tipped(drawn)) == 2 * _report_plot.MOST_BARS
    assert "rank 199" in texts(drawn)
    assert "rank 1" not in texts(drawn)


def test_colours_are_those_of_the_page() -> None:
    """Light, dark and print are the page's: a drawing that names a colour itself is unreadable in one of them."""
    for drawn in (_report_plot.draw(LINES), _report_plot.draw(BARS)):
        assert not re.search(r"#[0-9a-f]{6}\b", drawn)
        names = set(re.findall(r"var\(--([a-z0-9]+)\)", drawn))
        assert {"curve", "warn", "soft"} <= names
        for name in names:
            assert _report_html.STYLE.count(f"--{name}:#") == 2, f"{name} in light and in dark"


def test_two_drawings_share_no_names() -> None:
    page = ET.fromstring(f"<body>{_report_plot.draw(LINES)}{_report_plot.draw({**LINES, 'title': 'Other'})}</body>")
    names = [one.get("id") for one in page.iter() if one.get("id")]
    assert len(names) == len(set(names)) > 0


def test_names_of_a_hostile_report_are_text() -> None:
    odd = "$x_1$ <b>--> \u4e2d"
    drawn = _report_plot.draw({**BARS, "title": odd, "bars": [[odd, 3.0, 1.0]]})
    assert odd in texts(svg(drawn))
    assert "<b>--" not in drawn


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a control node that has the collection alone."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_without_matplotlib_the_page_is_written_and_says_so(no_matplotlib: None) -> None:
    assert _report_plot.draw(LINES) == ""
    page = _gate_html.page(with_plots())
    assert "written without matplotlib. Install it" in page
    assert "<svg" not in page
    assert "DDP" in page


@pytest.mark.parametrize(
    ("plot", "words"),
    [
        ({"kind": "pie"}, "expected lines or bars"),
        ({**LINES, "series": {"a": [[1, "2"]]}}, "points"),
        ({**LINES, "series": {"a": [[1, float("nan")]]}}, "points"),
        ({**BARS, "bars": [["n1", 1.0]]}, "a value for each of parts"),
    ],
)
def test_what_cannot_be_drawn_is_refused(plot: dict[str, Any], words: str) -> None:
    assert words in _report_plot.problem(plot)
    assert not _report_plot.problem(LINES)
    assert not _report_plot.problem(BARS)


def with_plots() -> dict[str, Any]:
    when = "2026-11-30T03:00:00Z"
    stage = _gate_stages.stage("training", "", [_gate_stages.check("DDP", ["n1"], "pass", "")])
    stage["plots"] = [LINES, BARS]
    return _gate_stages.add(_gate_stages.empty(when), stage, when)


def test_the_page_shows_a_stage_s_plots() -> None:
    report = with_plots()
    jsonschema.validate(report, SCHEMA)
    page = _gate_html.page(report)
    assert "Throughput &lt;by ranks&gt;" in page
    assert page.count("<figure>") == 2
    assert "matplotlib" not in page
