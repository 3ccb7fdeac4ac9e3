# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other proofs' stages in the acceptance report: verdict, next action, and all its forms."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_report
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_stages as stages

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
WHEN = "2026-11-30T03:00:00Z"
LATER = "2026-11-30T04:00:00Z"


def gate(verdict: str = "pass") -> dict[str, Any]:
    return {**stages.empty(WHEN), "verdict": verdict, "next_action": f"what the gate says of {verdict}"}


def training(status: str, **given: Any) -> dict[str, Any]:
    figures = [{"name": "MFU", "value": 41.25, "unit": "%", "floor": 35}]
    return stages.stage(
        "training", "A training job", [stages.check("FSDP", ["n1", "n2"], status, "why", figures, **given)]
    )


def added(report: dict[str, Any], stage: dict[str, Any], **given: Any) -> dict[str, Any]:
    found = stages.add(report, stage, LATER, **given)
    jsonschema.validate(found, SCHEMA)
    assert json.loads(json.dumps(found)) == found
    return found


@pytest.mark.parametrize(
    ("own", "status", "verdict", "speaker"),
    [
        ("pass", "pass", "pass", "the gate"),
        ("pass", "skipped", "pass", "the gate"),
        ("pass", "fail", "fail", "training"),
        ("pass", "blocked", "blocked", "training"),
        ("pass", "unstable", "unstable", "training"),
        ("fail", "pass", "fail", "the gate"),
        ("fail", "blocked", "fail", "the gate"),
        ("unstable", "fail", "fail", "training"),
        ("blocked", "skipped", "blocked", "the gate"),
    ],
)
def test_the_worst_counts_and_speaks(own: str, status: str, verdict: str, speaker: str) -> None:
    report = added(gate(own), training(status), next_action="training says")
    assert (report["verdict"], report["finished"]) == (verdict, LATER)
    assert speaker in report["next_action"]


def test_bad_check_speaks_where_no_action_is_given() -> None:
    report = added(gate(), training("fail"))
    assert report["next_action"] == "FSDP on n1, n2: why"
    later = added(report, stages.stage("storage", "", [stages.check("fio", ["n1"], "pass", "")]))
    assert later["next_action"] == report["next_action"], "another stage that passes changes nothing"


def test_same_stage_replaces_all_that_it_brought() -> None:
    culprit = {"kind": "node", "host": "n2", "device": "", "evidence": "slow steps"}
    bad = added(gate(), training("fail"), culprits=[culprit], warnings=["look here"])
    assert (bad["culprits"], bad["warnings"]) == ([culprit], ["look here"])
    good = added(bad, training("pass"))
    assert (good["verdict"], good["culprits"], good["warnings"]) == ("pass", [], [])
    assert [stage["name"] for stage in good["stages"]] == ["training"]
    assert good["next_action"] == "what the gate says of pass"


def test_all_forms_show_it() -> None:
    report = added(gate(), training("fail", seconds=81.5))
    page = _gate_html.page(report)
    assert "A training job" in page
    assert "MFU 41.2 % (floor 35.0)" in page
    case = ET.fromstring(_gate_report.junit(report)).find(".//testcase")
    assert case is not None
    assert (case.get("name"), case.get("time")) == ("FSDP on n1,n2", "81.50")
    assert case.find("failure") is not None
    metric = 'gpuops_acceptance_figure{stage="training",check="FSDP",figure="MFU",unit="%",host="n1,n2"} 41.25\n'
    assert metric in _gate_report.prometheus(report)


def test_skipped_is_shown_as_skipped() -> None:
    report = added(gate(), training("skipped"))
    assert ET.fromstring(_gate_report.junit(report)).find(".//skipped") is not None
    assert 'class="skipped"' in _gate_html.page(report)
