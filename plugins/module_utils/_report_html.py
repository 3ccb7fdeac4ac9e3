# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reports for people share: one self-contained page, light and dark, nothing loaded from elsewhere, no script."""

from __future__ import annotations

from html import escape

STYLE = """
:root{color-scheme:light dark;--ink:#1a1d21;--soft:#5b636d;--line:#d6dbe1;--paper:#fff;--panel:#f5f7f9;
  --good:#1a7f43;--bad:#b3261e;--warn:#8a5a00;--held:#4a5568;--curve:#1f6feb;
  --heat0:#efa9a4;--heat1:#f5c9a6;--heat2:#f6e7a6;--heat3:#cfe8c4;--heat4:#9fd6ac}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4b0;--line:#39414b;--paper:#14171b;--panel:#1d2126;
  --good:#56d384;--bad:#ff8a80;--warn:#f0b44c;--held:#b3bdc9;--curve:#79b0ff;
  --heat0:#86302b;--heat1:#7a4c26;--heat2:#655a1f;--heat3:#36592f;--heat4:#1d6b3b}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:64rem;
  padding:1.5rem}
h1{font-size:1.1rem;margin:0;color:var(--soft);font-weight:600}
h2{font-size:1.15rem;margin:2rem 0 .5rem}
.verdict{border-left:.5rem solid var(--tone);background:var(--panel);padding:1rem 1.25rem;margin:1rem 0}
.verdict strong{display:block;font-size:1.7rem;line-height:1.2;color:var(--tone)}
.verdict p{margin:.5rem 0 0}
.note{color:var(--warn);font-weight:600}
.soft{color:var(--soft)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600}
td.n,th.n{text-align:right;white-space:nowrap}
.pass{color:var(--good)}
.fail{color:var(--bad);font-weight:600}
.unstable{color:var(--warn);font-weight:600}
.blocked{color:var(--held);font-weight:600}
@media print{body{max-width:none;padding:0;font-size:11px}.wide{overflow:visible}h2{break-after:avoid}
  tr,svg,figure{break-inside:avoid}th,td{padding:.15rem .35rem}details::details-content{content-visibility:visible}}
"""
NONE = "\u2013"  # an en dash


def table(head: list[tuple[str, str]], rows: list[list[str]]) -> str:
    """`head`: title and class of each column; cells are HTML already."""
    top = "".join(f'<th class="{kind}">{escape(title)}</th>' for title, kind in head)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for cell, (_title, kind) in zip(row, head)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def verdict(tone: str, title: str, body: str) -> str:
    """The panel that a page begins with; `tone` is a colour of the style, `body` is HTML already."""
    return f'<section class="verdict" style="--tone:var({tone})"><strong>{escape(title)}</strong>{body}</section>'


def document(title: str, heading: str, body: str, style: str = "") -> str:
    """The whole HTML document; `body` is HTML already, `style` is what this page adds."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>"
        f"<h1>{escape(heading)}</h1>{body}</body></html>\n"
    )
