# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules drift and monitoring_verify as Ansible runs them."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.module_utils import _monitoring_verify
from ansible_collections.gpuops.cluster.plugins.modules import drift, monitoring_verify


def call(capsys: pytest.CaptureFixture[str], module: ModuleType, **given: Any) -> dict[str, Any]:
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        pytest.raises(SystemExit),
    ):
        module.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.fixture
def exporter() -> Iterator[int]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"node_uname_info 1\n")

        def log_message(self, *_words: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_monitoring_verify.UNITS, "exporter", __file__)
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:3128")


def test_a_page_is_asked_past_the_proxy(exporter: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, monitoring_verify, exporter_port=exporter)["not_asked"] == []


def test_a_daemon_that_does_not_answer_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(time, "sleep"):
        answer = call(capsys, monitoring_verify, exporter_port=1)
    assert answer["failed"] and answer["msg"].startswith("http://127.0.0.1:1/metrics does not answer: ")


def test_a_host_without_the_tools_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with mock.patch.object(basic.AnsibleModule, "run_command", side_effect=FileNotFoundError("dpkg-query")):
        answer = call(capsys, drift, packages=["a"], units=["a.service"], files=[{"path": "/", "state": "directory"}])
    assert answer["differs"] and not answer["changed"]
    assert (answer["packages"], answer["paths"], answer["units"]) == (["a"], [], ["a.service"])
