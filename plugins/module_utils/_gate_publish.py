# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the acceptance report in its four forms. All are made from the one document, so any stage may renew them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_report
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_store import write


def publish(folder: Path, report: dict[str, Any]) -> Path:
    """Replace the reports in `folder`, each whole; the JSON comes last, it is what others read. Returns the page."""
    for name, text in (
        ("acceptance.html", _gate_html.page(report)),
        ("acceptance.junit.xml", _gate_report.junit(report)),
        ("acceptance.prom", _gate_report.prometheus(report)),
        ("acceptance.json", json.dumps(report, indent=1) + "\n"),
    ):
        write(folder / name, text)
    return folder / "acceptance.html"
