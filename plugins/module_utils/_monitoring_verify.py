# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether exporter, Prometheus, Alertmanager and Grafana of a host do what they should. Private to this collection."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

UNITS = {
    "exporter": "/lib/systemd/system/prometheus-node-exporter.service",
    "Prometheus": "/lib/systemd/system/prometheus.service",
    "Alertmanager": "/lib/systemd/system/prometheus-alertmanager.service",
    "Grafana": "/usr/lib/systemd/system/grafana-server.service",
    "timers": "/etc/systemd/system/gpuops-{}-metrics.timer",
}


@dataclass
class Host:
    """What can be asked: pages, as status and text, or as 0 and why there is none; and what is installed."""

    get: Callable[[str], tuple[int, str]]
    sleep: Callable[[float], None]
    exists: Callable[[str], bool] = os.path.exists

    def page(self, url: str) -> tuple[str, str]:
        """(text, complaint)"""
        status, text = self.get(url)
        if status == 200:
            return text, ""
        return "", f"{url} answers {status}" if status > 0 else f"{url} does not answer: {text}"

    def data(self, url: str) -> tuple[Any, str]:
        """(what is under data in the answer of Prometheus, complaint)"""
        text, complaint = self.page(url)
        try:
            return (json.loads(text)["data"] if not complaint else None), complaint
        except (ValueError, KeyError, TypeError):
            return None, f"{url} answers with something else than Prometheus"

    def until(self, tries: int, delay: float, ask: Callable[[], str]) -> str:
        """Empty as soon as there is nothing to complain of; else the last complaint."""
        complaint = ask()
        for _again in range(tries):
            if not complaint:
                break
            self.sleep(delay)
            complaint = ask()
        return complaint


def exporter(host: Host, port: int, sources: list[str]) -> str:
    """Metrics of the host, and of each source whose timer is installed."""
    metrics = ["node_uname_info"]
    for source, metric in (("gpu", "gpuops_gpu_state"), ("slurm", "gpuops_slurm_up")):
        if source in sources and host.exists(UNITS["timers"].format(source)):
            metrics.append(metric)

    def ask() -> str:
        text, complaint = host.page(f"http://127.0.0.1:{port}/metrics")
        missing = [metric for metric in metrics if metric not in text]
        return complaint or (f"the exporter on port {port} has no {', '.join(missing)}" if missing else "")

    return host.until(20, 2, ask)


def scraped(host: Host, api: str, query: str, names: list[str], delay: float) -> str:
    def ask() -> str:
        data, complaint = host.data(f"{api}/query?query={quote(query)}")
        seen = {found.get("metric", {}).get("instance") for found in (data or {}).get("result", [])}
        missing = [name for name in names if name not in seen]
        return complaint or (f"Prometheus has no {query} of {', '.join(missing)}" if missing else "")

    return host.until(24, delay, ask)


def prometheus(host: Host, wanted: dict[str, Any]) -> str:
    """Every host has been scraped, and the rules are loaded."""
    api, delay = wanted["api"], min(5, wanted["interval"])
    complaint = scraped(host, api, 'up{job="node"} == 1', wanted["hosts"], delay)
    complaint = complaint or scraped(host, api, "gpuops_gpu_state", wanted["gpu_hosts"], delay)
    if complaint:
        return complaint
    data, complaint = host.data(f"{api}/rules")
    if complaint or any(group.get("name") == "gpuops" for group in data.get("groups", [])):
        return complaint
    return "Prometheus has not loaded the rules of the group gpuops"


def alertmanager(host: Host, api: str, address: str, receivers: list[str]) -> str:
    """Prometheus sends its alerts to the one here, which has loaded all receivers. Nothing of its answer is told."""

    def known() -> str:
        data, complaint = host.data(f"{api}/alertmanagers")
        urls = [found.get("url", "") for found in (data or {}).get("activeAlertmanagers", [])]
        return complaint or ("" if any(address in url for url in urls) else f"Prometheus sends no alerts to {address}")

    def loaded() -> str:
        text, complaint = host.page(f"http://{address}/api/v2/status")
        if complaint:
            return complaint
        try:
            config = str(json.loads(text)["config"]["original"])
        except (ValueError, KeyError, TypeError):
            return f"http://{address} answers with something else than an Alertmanager"
        missing = [name for name in receivers if name not in config]
        return f"the Alertmanager at {address} has not loaded {', '.join(missing)}" if missing else ""

    return host.until(24, 5, known) or host.until(12, 5, loaded)


def verify(host: Host, wanted: dict[str, Any]) -> tuple[str, list[str]]:
    """(what is wrong, what could not be asked yet)"""
    if wanted["exporter_port"]:
        if not host.exists(UNITS["exporter"]):
            return "", ["the exporter is asked once it is installed"]
        complaint = exporter(host, wanted["exporter_port"], wanted["sources"])
        if complaint:
            return complaint, []
    server = wanted["prometheus"]
    if not server:
        return "", []
    if not host.exists(UNITS["Prometheus"]):
        return "", ["Prometheus is asked once it is installed"]
    complaint = prometheus(host, server)
    receivers = server["receivers"]
    if not complaint and receivers and host.exists(UNITS["Alertmanager"]):
        complaint = alertmanager(host, server["api"], server["alertmanager"], receivers)
    if not complaint and server["grafana"] and host.exists(UNITS["Grafana"]):
        url = f"{server['grafana']}/api/health"
        complaint = host.until(24, 5, lambda: host.page(url)[1])
    return complaint, []
