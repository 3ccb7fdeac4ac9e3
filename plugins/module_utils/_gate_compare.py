# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two acceptance reports side by side: what was measured in both, and what in one alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

WORTH = 0.02  # changes below this share are noise


def read(path: str) -> tuple[Optional[dict[str, Any]], str]:
    """The report at `path`, a file or the folder that holds it; else why not."""
    where = Path(path).expanduser()
    where = where / "acceptance.json" if where.is_dir() else where
    try:
        report = json.loads(where.read_text(encoding="utf-8"))
    except OSError as error:
        return None, f"{where}: {error.strerror}"
    except ValueError:
        return None, f"{where} is not JSON"
    if not isinstance(report, dict) or "stages" not in report or "verdict" not in report:
        return None, f"{where} is no acceptance report"
    return report, ""


def figures(report: dict[str, Any]) -> dict[str, float]:
    """Every figure of a report by what was measured: collectives in GB/s, and the figures of other checks."""
    found: dict[str, float] = {}
    for stage in report["stages"]:
        for result in stage["results"] if stage["name"] != "isolation" else []:
            where = result["nodes"][0] if len(result["nodes"]) == 1 else f"{len(result['nodes'])} nodes"
            if result.get("median_gbps") is not None:
                found[f"{result['collective']} on {where} (GB/s)"] = result["median_gbps"]
            for figure in result.get("figures", []):
                unit = f" ({figure['unit']})" if figure["unit"] else ""
                found[f"{result['check']} on {where}, {figure['name']}{unit}"] = figure["value"]
    return found


def compare(old: dict[str, Any], new: dict[str, Any], path: str) -> dict[str, Any]:
    """{path, finished, verdict, tests: [{test, before, after, change}], missing, added}; change is a share."""
    before, after = figures(old), figures(new)
    both = [test for test in before if test in after]
    tests = [
        {
            "test": test,
            "before": before[test],
            "after": after[test],
            "change": round(after[test] / before[test] - 1, 4) if before[test] else None,
        }
        for test in both
    ]
    tests.sort(key=lambda one: one["change"] if one["change"] is not None else 0)
    return {
        "path": path,
        "finished": str(old.get("finished", "")),
        "verdict": str(old["verdict"]),
        "tests": tests,
        "missing": [test for test in before if test not in after],
        "added": [test for test in after if test not in before],
    }


def words(compared: dict[str, Any], limit: int = 5) -> list[str]:
    """What a person should hear of it: the largest changes first."""
    moved = [one for one in compared["tests"] if one["change"] is not None and abs(one["change"]) >= WORTH]
    moved.sort(key=lambda one: -abs(one["change"]))
    lines = [f"{one['test']}: {one['before']:g} to {one['after']:g} ({one['change']:+.1%})" for one in moved[:limit]]
    if len(moved) > limit:
        lines.append(f"{len(moved) - limit} more tests changed by {WORTH:.0%} or more")
    same = len(compared["tests"]) - len(moved)
    old = f"{compared['finished']} ({compared['verdict']})"
    return [f"compared with {old}: {same} of {len(compared['tests'])} tests as before", *lines]
