# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts of a report: drawn by matplotlib on the control node, put into the page as SVG in the page's own colours.

matplotlib knows fixed colours alone, while those of the page follow the reader's light or dark mode and printer. So it
is given a stand-in for each of the page's colours, and the finished SVG gets their names. Without matplotlib a page has
no charts, and says so.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

WIDTH = 640
SQUARE = "\u25a0"
NAMES = ("ink", "soft", "line", "paper", "good", "bad", "warn", "held", "curve", *(f"heat{n}" for n in range(5)))
COLOURS = {name: f"#fe{number:02x}a7" for number, name in enumerate(NAMES)}
MISSING = "Charts are not drawn: this page was written without matplotlib. Install it for the Python that runs Ansible."
STYLE = """
figure{margin:1rem 0}
figcaption b{font-weight:400;margin-left:.6rem;white-space:nowrap}
svg{max-width:100%;height:auto}
svg text{font-family:system-ui,sans-serif!important}
svg *{stroke-linejoin:round;stroke-linecap:butt}
"""
SETTINGS = {
    "svg.fonttype": "none",  # text stays text: small, sharp, found by a search
    "text.parse_math": False,  # names may hold a dollar sign
    "font.size": 12,
    "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["soft"],
    "text.color": COLOURS["soft"],
    "xtick.color": COLOURS["line"],
    "ytick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["soft"],
    "ytick.labelcolor": COLOURS["soft"],
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2,
}


def available() -> bool:
    try:
        return find_spec("matplotlib") is not None
    except ValueError:
        return False


class Sheet:
    """What a chart is painted on: matplotlib's axes, and words that appear when the mouse rests on a part."""

    def __init__(self, axes: Any) -> None:
        self.axes = axes
        self.tips: list[str] = []

    def tip(self, artist: Any, words: str) -> None:
        artist.set_gid(f"tip{len(self.tips)}")
        self.tips.append(words)


def chart(
    title: str,
    legend: list[tuple[str, str]],
    width: float,
    height: float,
    paint: Callable[[Sheet], None],
    marks: str = "",
) -> str:
    """A figure of the page, `width` by `height` pixels; empty without matplotlib.

    `legend` names colours of NAMES, `marks` are signs before them where colours alone do not tell them apart.
    """
    if not available():
        return ""
    # Imported here: it takes a second, and modules that never draw are on nodes that have none.
    matplotlib, pictures = import_module("matplotlib"), import_module("matplotlib.figure")
    svg = import_module("matplotlib.backends.backend_svg")
    text = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of glyphs that its font lacks; the reader's browser has others
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**SETTINGS, "svg.hashsalt": title})
        figure = pictures.Figure(figsize=(width / 72, height / 72), layout="constrained")
        figure.patch.set_visible(False)
        sheet = Sheet(figure.add_subplot())
        sheet.axes.patch.set_visible(False)
        paint(sheet)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        svg.FigureCanvasSVG(figure).print_svg(text, metadata=nothing)
    marks = marks or SQUARE * len(legend)
    keys = "".join(
        f' <b><span style="color:var(--{colour})" aria-hidden="true">{marks[place]}</span> {escape(name)}</b>'
        for place, (colour, name) in enumerate(legend)
    )
    name = escape(title)
    return (
        f'<figure><figcaption class="soft">{name}{keys}</figcaption>'
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{name}">'
        f"{_inline(text.getvalue(), sheet.tips)}</svg></figure>"
    )


def _inline(document: str, tips: list[str]) -> str:
    """The inside of matplotlib's SVG document as a part of the page: no names that two charts would share."""
    inside = document[document.index("<svg") :].partition(">")[2].rpartition("</svg>")[0]
    inside = re.sub(r"<!--.*?-->|<style.*?</style>|<metadata>.*?</metadata>", "", inside, flags=re.DOTALL)
    inside = re.sub(r'<g id="tip(\d+)"([^>]*)>', lambda m: f"<g{m[2]}><title>{escape(tips[int(m[1])])}</title>", inside)
    inside = re.sub(r'<g id="[^"]*"', "<g", inside)
    inside = inside.replace("xlink:href", "href")
    names = {value: name for name, value in COLOURS.items()}
    inside = re.sub("|".join(names), lambda m: f"var(--{names[m[0]]})", inside)
    return re.sub(r"\s*\n\s*", "\n", inside)
