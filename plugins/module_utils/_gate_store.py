# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's folder on the control node: reports, logs, and baselines of what this hardware reached before."""

from __future__ import annotations

import json
import os
import re
import statistics
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

HISTORY = 20  # passing runs that a baseline remembers; its figure is their median


def write(path: Path, text: str) -> None:
    """Whole or not at all, readable by all: collectors read these files while they are replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Store:
    """Everything under `nccl_tests_report_dir`."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def last(self) -> Optional[dict[str, Any]]:
        report = _load(self.folder / "acceptance.json")
        return report if isinstance(report, dict) else None

    def proof(self, key: str, days: float, now: float) -> Optional[dict[str, Any]]:
        """The last report, when it is a pass of exactly these hosts, parts and settings and not too old."""
        report = self.last()
        if report is None or report.get("verdict") != "pass" or (report.get("baseline") or {}).get("proof") != key:
            return None
        try:
            finished = datetime.strptime(str(report.get("finished")), "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            return None
        age = now - finished.replace(tzinfo=timezone.utc).timestamp()
        return report if 0 <= age <= days * 86400 else None

    def _baseline(self, key: str) -> Path:
        return self.folder / "baselines" / f"{key}.json"

    def history(self, key: str) -> dict[str, list[dict[str, Any]]]:
        """By test (node, cluster, cluster_alltoall): [{finished, gbps}] of passing runs, oldest first."""
        history = _load(self._baseline(key))
        return history if isinstance(history, dict) else {}

    def baseline(self, key: str) -> dict[str, float]:
        """By test: the median of what passing runs of the same hardware and software reached."""
        return {
            test: round(statistics.median(run["gbps"] for run in runs), 5)
            for test, runs in self.history(key).items()
            if runs
        }

    def promote(self, key: str, finished: str, figures: dict[str, float]) -> None:
        """Add a passing run."""
        history = self.history(key)
        for test, gbps in figures.items():
            history[test] = [*history.get(test, []), {"finished": finished, "gbps": gbps}][-HISTORY:]
        write(self._baseline(key), json.dumps(history, indent=1) + "\n")

    def save_log(self, name: str, text: str) -> None:
        write(self.folder / "logs" / re.sub(r"[^A-Za-z0-9._-]", "_", name), text)

    def clear_logs(self) -> None:
        """Logs belong to the last run."""
        for log in (self.folder / "logs").glob("*.log"):
            log.unlink(missing_ok=True)
