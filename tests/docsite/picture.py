# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of the gate's report in the README: `python -m tests.docsite.picture docs/gate-report.png`.

The report is that of the unit tests' simulated cluster, one GPU of which is slow. Needs chromium, and ImageMagick to
make it small.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / ".ansible/collections"))

from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_report  # noqa: E402
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_run import Gate  # noqa: E402
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import Cluster, node, settings  # noqa: E402


def report() -> str:
    cluster, baseline = Cluster(nodes={"gpu05/3": ("slow", 0.5)}), {"node": 479.0, "cluster": 366.0}
    nodes = {f"gpu{number:02}": node(f"gpu{number:02}") for number in range(1, 9)}
    gate = Gate(
        settings(),
        nodes,
        cluster.run,
        lambda text: json.loads(text or "[]"),
        cluster.said.append,
        cluster.logs.__setitem__,
        baseline,
    )
    gate.run()
    kept = {"key": "k", "proof": "p", "values": baseline}
    times = ("2026-11-30T03:00:00Z", "2026-11-30T03:05:00Z")
    return _gate_html.page(_gate_report.document(gate, *times, kept, "Simulated: eight nodes, one slow GPU."))


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(report(), encoding="utf-8")
        browser = [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=900,615",
        ]
        light = ["--blink-settings=preferredColorScheme=1", f"--screenshot={folder}/report.png"]
        subprocess.run([*browser, *light, page.as_uri()], check=True, timeout=120, capture_output=True)
        small = ["convert", f"{folder}/report.png", "-strip", "+dither", "-colors", "64", f"png8:{target}"]
        subprocess.run(small, check=True, timeout=60)


if __name__ == "__main__":
    main(sys.argv[1])
