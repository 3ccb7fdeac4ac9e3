# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of GPUs and fabric as metrics in Prometheus' text format; private to this collection.

A value that the driver does not report has no sample: nothing is made up as zero.
"""

from __future__ import annotations

from typing import Any, Optional, Union

Number = Union[int, float, bool, None]
Labels = dict[str, Any]

HELP = {
    "gpu_state": "1 for the state of the host's GPUs and driver, named by the label",
    "gpu_count": "GPUs that the driver reports",
    "gpu_pci_count": "GPUs on the PCI bus",
    "gpu_info": "What a GPU is, always 1",
    "gpu_problem": "A problem of a GPU, or of the host where gpu is empty, always 1",
    "gpu_temperature_celsius": "Temperature of a GPU",
    "gpu_memory_bytes": "Memory of a GPU",
    "gpu_memory_used_bytes": "Memory of a GPU in use",
    "gpu_utilization_ratio": "Share of the last sample period in which a kernel ran, 0 to 1",
    "gpu_power_watts": "Power draw of a GPU",
    "gpu_power_limit_watts": "Power limit of a GPU",
    "gpu_sm_clock_hertz": "Clock of the streaming multiprocessors",
    "gpu_ecc_errors": "ECC errors, volatile (since the last reset) or aggregate",
    "gpu_remapped_rows": "Memory rows remapped after errors",
    "gpu_retired_pages": "Memory pages retired after errors",
    "gpu_pcie_width": "PCIe lanes in use",
    "gpu_pcie_width_max": "PCIe lanes that slot and card offer",
    "gpu_throttle_reason": "A reason for which the clocks are held down, always 1",
    "rdma_port_active": "1 where an RDMA port is active",
    "rdma_port_rate_bits_per_second": "Rate of an RDMA port",
    "fabric_problem": "A problem of a network device, always 1",
    "node_health_finding": "What the last health check of the node found, and what that does, always 1",
    "node_health_timestamp_seconds": "When the last health check of the node ran",
    "metrics_seconds": "Seconds that reading these metrics took",
}
# Columns of `nvidia-smi --query-gpu`: metric and factor to its unit.
USAGE = {
    "utilization.gpu": ("gpu_utilization_ratio", 0.01),
    "memory.used": ("gpu_memory_used_bytes", 1 << 20),
    "power.draw": ("gpu_power_watts", 1),
    "clocks.current.sm": ("gpu_sm_clock_hertz", 1e6),
}


class Page:
    """Samples by metric, in the order of the help texts."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.samples: dict[str, list[tuple[Labels, float]]] = {name: [] for name in texts}

    def add(self, metric: str, value: Number, **labels: Any) -> None:
        if value is not None:
            self.samples[metric].append((labels, float(value)))

    def text(self) -> str:
        lines = []
        for name, samples in self.samples.items():
            if samples:
                lines += [f"# HELP gpuops_{name} {self.texts[name]}", f"# TYPE gpuops_{name} gauge"]
                lines += [f"gpuops_{name}{braces(labels)} {value:.15g}" for labels, value in samples]
        return "\n".join(lines) + "\n"


def braces(labels: Labels) -> str:
    def quoted(value: Any) -> str:
        text = "" if value is None else str(value)
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{k}="{quoted(v)}"' for k, v in labels.items()) + "}" if labels else ""


def parse_usage(text: str) -> dict[str, dict[str, float]]:
    """`nvidia-smi --query-gpu=uuid,... --format=csv,noheader,nounits` by UUID; what is no number is left out."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(USAGE) + 1 and cells[0].startswith("GPU-"):
            values = found.setdefault(cells[0], {})
            for cell, (metric, factor) in zip(cells[1:], USAGE.values()):
                try:
                    values[metric] = float(cell) * factor
                except ValueError:
                    continue
    return found


def add_device(page: Page, device: dict[str, Any], usage: dict[str, float]) -> None:
    gpu = {"gpu": device["index"], "uuid": device.get("uuid")}
    kind = {key: device.get(key) for key in ("name", "pci", "minor")}
    page.add("gpu_info", 1, **gpu, **kind)
    memory: Optional[int] = device.get("memory_mib")
    page.add("gpu_memory_bytes", None if memory is None else memory << 20, **gpu)
    page.add("gpu_temperature_celsius", device.get("temperature_c"), **gpu)
    page.add("gpu_power_limit_watts", device.get("power_limit_w"), **gpu)
    for metric, value in usage.items():
        page.add(metric, value, **gpu)
    for key, value in (device.get("ecc") or {}).items():
        kind_of_error, _separator, counter = key.partition("_")
        if counter:
            page.add("gpu_ecc_errors", value, **gpu, error=kind_of_error, counter=counter)
    for metric, group in (("gpu_remapped_rows", "remapped_rows"), ("gpu_retired_pages", "retired_pages")):
        for key, value in (device.get(group) or {}).items():
            page.add(metric, value, **gpu, kind=key)
    pcie = device.get("pcie") or {}
    page.add("gpu_pcie_width", pcie.get("width"), **gpu)
    page.add("gpu_pcie_width_max", pcie.get("width_max"), **gpu)
    for reason in device.get("throttle_reasons") or []:
        page.add("gpu_throttle_reason", 1, **gpu, reason=reason)


def add_health(page: Page, health: dict[str, Any]) -> None:
    """The result that node_health keeps; a finding of the same code and device once."""
    page.add("node_health_timestamp_seconds", health.get("time"))
    for row in health.get("findings", []):
        labels = {key: str(row.get(key, "")) for key in ("code", "device", "severity")}
        if (labels, 1.0) not in page.samples["node_health_finding"]:
            page.add("node_health_finding", 1, **labels)


def render(
    gpu: dict[str, Any],
    fabric: dict[str, Any],
    usage: dict[str, dict[str, float]],
    seconds: float,
    health: Optional[dict[str, Any]] = None,
) -> str:
    """Page of the facts `ansible_facts.gpu` and `ansible_facts.fabric` of a host, with what its health check found."""
    page = Page(HELP)
    page.add("gpu_state", 1, state=gpu["state"])
    page.add("gpu_count", gpu["count"])
    page.add("gpu_pci_count", gpu["pci_count"])
    for device in gpu["devices"]:
        add_device(page, device, usage.get(device.get("uuid") or "", {}))
    for device, code in dict.fromkeys((p["device"], p["code"]) for p in gpu["problems"]):
        page.add("gpu_problem", 1, gpu=device, code=code)
    for hca in fabric["rdma"]:
        for port in hca["ports"]:
            labels = {"device": hca["name"], "port": port["port"]}
            page.add("rdma_port_active", str(port["state"]).lower() == "active", **labels)
            rate = port.get("rate_gbps")
            page.add("rdma_port_rate_bits_per_second", None if rate is None else rate * 1e9, **labels)
    for device, code in dict.fromkeys((p["device"], p["code"]) for p in fabric["problems"]):
        page.add("fabric_problem", 1, device=device, code=code)
    add_health(page, health or {})
    page.add("metrics_seconds", round(seconds, 3))
    return page.text()
