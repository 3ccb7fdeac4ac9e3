# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the daemons, how long, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._monitoring_verify import Host, verify

API = "http://127.0.0.1:9090/api/v1"
EXPORTER = {"exporter_port": 9100, "sources": ["gpu"], "prometheus": None}
SERVER = {
    "exporter_port": 0,
    "sources": [],
    "prometheus": {
        "api": API,
        "interval": 15,
        "hosts": ["ctl", "n1"],
        "gpu_hosts": ["n1"],
        "alertmanager": "127.0.0.1:9093",
        "receivers": ["pager"],
        "grafana": "http://127.0.0.1:3000",
    },
}


def data(**fields: Any) -> str:
    return json.dumps({"status": "success", "data": fields})


def instances(*names: str) -> str:
    return data(result=[{"metric": {"instance": name}, "value": [1, "1"]} for name in names])


def pages() -> dict[str, str]:
    """Everything as it should be."""
    return {
        "http://127.0.0.1:9100/metrics": "node_uname_info 1\ngpuops_gpu_state 1\n",
        f"{API}/query?query=up%7Bjob%3D%22node%22%7D%20%3D%3D%201": instances("ctl", "n1"),
        f"{API}/query?query=gpuops_gpu_state": instances("n1"),
        f"{API}/rules": data(groups=[{"name": "gpuops"}]),
        f"{API}/alertmanagers": data(activeAlertmanagers=[{"url": "http://127.0.0.1:9093/api/v2/alerts"}]),
        "http://127.0.0.1:9093/api/v2/status": json.dumps({"config": {"original": "name: pager, password: s3cret"}}),
        "http://127.0.0.1:3000/api/health": "{}",
    }


def host(answers: dict[str, str], naps: list[float], exists: Callable[[str], bool] = lambda _path: True) -> Host:
    def get(url: str) -> tuple[int, str]:
        return (200, answers[url]) if url in answers else (-1, "Connection refused")

    return Host(get, naps.append, exists)


@pytest.mark.parametrize("wanted", [EXPORTER, SERVER])
def test_what_is_well_is_asked_once(wanted: dict[str, Any]) -> None:
    naps: list[float] = []
    assert verify(host(pages(), naps), wanted) == ("", [])
    assert naps == []


@pytest.mark.parametrize(
    ("wanted", "url", "page", "complaint", "naps"),
    [
        (EXPORTER, ":9100/metrics", "node_uname_info 1", "the exporter on port 9100 has no gpuops_gpu_state", 20),
        (EXPORTER, ":9100/metrics", None, "http://127.0.0.1:9100/metrics does not answer: Connection refused", 20),
        (SERVER, "%201", instances("ctl"), 'Prometheus has no up{job="node"} == 1 of n1', 24),
        (SERVER, "=gpuops_gpu_state", instances(), "Prometheus has no gpuops_gpu_state of n1", 24),
        (SERVER, "=gpuops_gpu_state", "?", "answers with something else than Prometheus", 24),
        (SERVER, "/rules", data(groups=[]), "Prometheus has not loaded the rules of the group gpuops", 0),
        (SERVER, "/alertmanagers", data(activeAlertmanagers=[]), "Prometheus sends no alerts to 127.0.0.1:9093", 24),
        (SERVER, "/status", '{"config": {"original": "s3cret"}}', "127.0.0.1:9093 has not loaded pager", 12),
        (SERVER, "/status", '{"s3cret": 1}', "answers with something else than an Alertmanager", 12),
        (SERVER, "/health", None, "http://127.0.0.1:3000/api/health does not answer", 24),
    ],
)
def test_what_is_wrong_is_waited_for_and_said(
    wanted: dict[str, Any], url: str, page: str | None, complaint: str, naps: int
) -> None:
    answers = pages()
    changed = next(known for known in answers if known.endswith(url))
    del answers[changed]
    if page is not None:
        answers[changed] = page
    slept: list[float] = []
    said, _not_asked = verify(host(answers, slept), wanted)
    assert complaint in said and "s3cret" not in said
    assert len(slept) == naps


def test_what_comes_late_is_seen() -> None:
    answers, naps = pages(), []
    page = answers.pop("http://127.0.0.1:9100/metrics")

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            answers["http://127.0.0.1:9100/metrics"] = page

    late = host(answers, [])
    late.sleep = sleep
    assert verify(late, EXPORTER) == ("", [])
    assert naps == [2, 2, 2]


def test_what_is_not_installed_is_not_asked() -> None:
    bare = host({}, [], lambda _path: False)
    assert verify(bare, EXPORTER) == ("", ["the exporter is asked once it is installed"])
    assert verify(bare, SERVER) == ("", ["Prometheus is asked once it is installed"])
    answers = {url: page for url, page in pages().items() if ":9090" in url}
    alone = host(answers, [], lambda path: path.endswith("/prometheus.service"))
    assert verify(alone, SERVER) == ("", [])
    answers = {"http://127.0.0.1:9100/metrics": "node_uname_info 1"}
    assert verify(host(answers, [], lambda path: "timer" not in path), EXPORTER) == ("", [])
