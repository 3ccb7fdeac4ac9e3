# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action that other stages call, as a play would: written files, refusals, check mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
CHECK = {"check": "FSDP", "nodes": ["n1"], "status": "pass", "figures": [{"name": "MFU", "value": 41, "unit": "%"}]}


def call(folder: Path, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
    arguments = {"report_dir": str(folder / "reports"), "name": "training", "results": [CHECK], **given}
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": [{"gpuops.cluster.acceptance_stage": arguments}]}]
    (folder / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local", *words]
    return subprocess.run([*command, str(folder / "play.yml")], cwd=ROOT, capture_output=True, text=True, check=False)


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "reports/acceptance.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA)
    return found


def test_stage_is_added_and_replaced(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert read(tmp_path)["verdict"] == "pass"
    names = {path.name for path in (tmp_path / "reports").iterdir()}
    assert names == {"acceptance.json", "acceptance.html", "acceptance.junit.xml", "acceptance.prom"}
    done = call(tmp_path, results=[{**CHECK, "status": "fail", "reason": "12 %"}])
    assert done.returncode != 0
    assert "FSDP on n1: 12 %" in " ".join(done.stdout.split())
    assert read(tmp_path)["verdict"] == "fail"


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    assert call(tmp_path, "--check").returncode == 0
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "nodes"}, "name is 'nodes'"),
        ({"results": []}, "at least one check"),
        ({"plots": [{"kind": "pie", "title": "Cake"}]}, "plot 'Cake': kind is 'pie'"),
        ({"culprits": [{"kind": "cat", "host": "n1", "evidence": "x"}]}, "a culprit is"),
        ({"results": [{**CHECK, "figures": [{"name": "MFU", "value": "41 %"}]}]}, "a figure of 'FSDP'"),
    ],
)
def test_what_would_spoil_the_report_is_refused(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    done = call(tmp_path, **given)
    assert done.returncode != 0
    assert words in " ".join((done.stdout + done.stderr).split())
    assert not (tmp_path / "reports").exists()
