"""Alert rules: promtool plays each alert's series, sick and healthy, and every alert has a runbook that exists."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
RULES = "/etc/prometheus/gpuops.rules.yml"
NODE = 'instance="n1"'
ON = {"instance": "n1"}
GPU = f'{NODE},gpu="2",uuid="GPU-2"'

# Alert: series that raise it, minutes until then, labels besides name and severity, summary. "A+BxC" is promtool's
# short form of a value, what is added each minute, and how often.
Case = tuple[dict[str, str], str, dict[str, str], str]
CASES: dict[str, Case] = {
    "NodeDown": ({f'up{{job="node",{NODE}}}': "0x10"}, "5m", {"job": "node", **ON}, "n1 does not answer"),
    "GpuProblem": (
        {f'gpuops_gpu_problem{{{NODE},gpu="2",code="gpu_lost"}}': "1x10"},
        "5m",
        {**ON, "gpu": "2", "code": "gpu_lost"},
        "n1: gpu_lost on GPU 2",
    ),
    "GpuThrottled": (
        {f'gpuops_gpu_problem{{{NODE},gpu="2",code="thermal_slowdown"}}': "1x20"},
        "15m",
        {**ON, "gpu": "2", "code": "thermal_slowdown"},
        "n1: thermal_slowdown on GPU 2",
    ),
    "GpuAttention": (
        {f'gpuops_gpu_problem{{{NODE},gpu="",code="report_truncated"}}': "1x60"},
        "40m",
        {**ON, "code": "report_truncated"},
        "n1: report_truncated",
    ),
    "GpuDriver": (
        {f'gpuops_gpu_state{{{NODE},state="no_answer"}}': "1x20"},
        "10m",
        {**ON, "state": "no_answer"},
        "n1: GPU driver is in state no_answer",
    ),
    "GpuMissing": (
        {f"gpuops_gpu_count{{{NODE}}}": "7x20", f"gpuops_gpu_pci_count{{{NODE}}}": "8x20"},
        "10m",
        ON,
        "n1: 7 GPUs answer, more are on the bus",
    ),
    "GpuLost": (
        {f"gpuops_gpu_pci_count{{{NODE}}}": "8x30 7x30"},
        "45m",
        ON,
        "n1: 7 GPUs on the bus, there were more within the last week",
    ),
    "GpuMemoryErrors": (
        {f'gpuops_gpu_remapped_rows{{{GPU},kind="uncorrectable"}}': "0x10 1x30"},
        "20m",
        {**ON, "gpu": "2", "uuid": "GPU-2", "kind": "uncorrectable"},
        "n1: GPU 2 has had memory rows remapped within a day",
    ),
    "GpuHot": (
        {f"gpuops_gpu_temperature_celsius{{{GPU}}}": "93x20"},
        "10m",
        {**ON, "gpu": "2", "uuid": "GPU-2"},
        "n1: GPU 2 has 93 °C",
    ),
    "GpuMetricsOld": (
        {f'node_textfile_mtime_seconds{{{NODE},file="/x/gpuops.prom"}}': "0x30"},
        "20m",
        {**ON, "file": "/x/gpuops.prom"},
        "n1: GPU metrics are 20m 0s old; see gpuops-gpu-metrics.service",
    ),
    "NodeSick": (
        {f'gpuops_node_health_finding{{{NODE},code="xid_79",device="GPU 3",severity="drain"}}': "1x20"},
        "10m",
        {**ON, "code": "xid_79", "device": "GPU 3"},
        "n1: xid_79 GPU 3",
    ),
    "NodeHealthWarning": (
        {f'gpuops_node_health_finding{{{NODE},code="check_failed",device="disk /",severity="warn"}}': "1x120"},
        "90m",
        {**ON, "code": "check_failed", "device": "disk /"},
        "n1: check_failed disk /",
    ),
    "FabricProblem": (
        {f'gpuops_fabric_problem{{{NODE},device="mlx5_0",code="rate_degraded"}}': "1x20"},
        "10m",
        {**ON, "device": "mlx5_0", "code": "rate_degraded"},
        "n1: rate_degraded on mlx5_0",
    ),
    "RdmaPortLost": (
        {f'gpuops_rdma_port_active{{{NODE},device="mlx5_0",port="1"}}': "1x10 0x20"},
        "20m",
        {**ON, "device": "mlx5_0", "port": "1"},
        "n1: RDMA port mlx5_0:1 went down",
    ),
    "FabricErrors": (
        {f'node_infiniband_link_downed_total{{{NODE},device="mlx5_0",port="1"}}': "0x10 1x50"},
        "30m",
        {**ON, "device": "mlx5_0", "port": "1"},
        "n1: errors rise on mlx5_0:1",
    ),
    "ClockOffset": (
        {f"node_timex_offset_seconds{{{NODE}}}": "-0.2x30"},
        "20m",
        ON,
        "n1: the clock is off, or set by nobody",
    ),
    "DiskFull": (
        {
            f'node_filesystem_avail_bytes{{{NODE},mountpoint="/",fstype="ext4"}}': "1x30",
            f'node_filesystem_size_bytes{{{NODE},mountpoint="/",fstype="ext4"}}': "100x30",
        },
        "20m",
        {**ON, "mountpoint": "/", "fstype": "ext4"},
        "n1: / has 1% free",
    ),
    "MetricsFileBroken": (
        {f"node_textfile_scrape_error{{{NODE}}}": "1x20"},
        "10m",
        ON,
        "n1: node_exporter cannot read a file of metrics",
    ),
    "SlurmDown": ({f"gpuops_slurm_up{{{NODE}}}": "0x20"}, "10m", ON, "n1: slurmctld does not answer"),
    "SlurmNodesOut": (
        {f'gpuops_slurm_nodes{{{NODE},standing="out"}}': "2x30"},
        "20m",
        ON,
        "2 nodes of Slurm are down or drained",
    ),
    "SlurmQueueStuck": (
        {
            f"gpuops_slurm_oldest_waiting_seconds{{{NODE}}}": "7200x30",
            f'gpuops_slurm_nodes{{{NODE},standing="idle"}}': "4x30",
            f'gpuops_slurm_jobs{{{NODE},state="running"}}': "0x30",
        },
        "20m",
        ON,
        "jobs have waited for 2h 0m 0s while nodes are idle and nothing runs",
    ),
    "GateFailed": (
        {f'gpuops_acceptance_verdict{{{NODE},verdict="fail"}}': "1x5"},
        "2m",
        {**ON, "verdict": "fail"},
        "the last acceptance gate said fail",
    ),
    "GateOld": (
        {f"gpuops_acceptance_finished_timestamp_seconds{{{NODE}}}": "0x1600"},
        "1500m",
        ON,
        "the last acceptance gate was 1d 1h 0m 0s ago",
    ),
}
# A cluster on which nothing is wrong: none of the alerts may say a word in an hour.
HEALTHY = {
    f'up{{job="node",{NODE}}}': "1x90",
    f'gpuops_gpu_state{{{NODE},state="ok"}}': "1x90",
    f"gpuops_gpu_count{{{NODE}}}": "8x90",
    f"gpuops_gpu_pci_count{{{NODE}}}": "8x90",
    f'gpuops_gpu_remapped_rows{{{GPU},kind="correctable"}}': "3x90",
    f"gpuops_gpu_temperature_celsius{{{GPU}}}": "70x90",
    f'node_textfile_mtime_seconds{{{NODE},file="/x/gpuops.prom"}}': "0+60x90",
    f'gpuops_rdma_port_active{{{NODE},device="mlx5_0",port="1"}}': "1x90",
    f'gpuops_rdma_port_active{{{NODE},device="mlx5_9",port="1"}}': "0x90",  # never used
    f'node_infiniband_link_downed_total{{{NODE},device="mlx5_0",port="1"}}': "3x90",
    f"node_timex_offset_seconds{{{NODE}}}": "0.0001x90",
    f"node_timex_maxerror_seconds{{{NODE}}}": "0.02x90",
    f'node_filesystem_avail_bytes{{{NODE},mountpoint="/",fstype="ext4"}}': "50x90",
    f'node_filesystem_size_bytes{{{NODE},mountpoint="/",fstype="ext4"}}': "100x90",
    f"node_textfile_scrape_error{{{NODE}}}": "0x90",
    f"gpuops_slurm_up{{{NODE}}}": "1x90",
    f'gpuops_slurm_nodes{{{NODE},standing="out"}}': "0x90",
    f'gpuops_slurm_nodes{{{NODE},standing="idle"}}': "4x90",
    f"gpuops_slurm_oldest_waiting_seconds{{{NODE}}}": "7200x90",
    f'gpuops_slurm_jobs{{{NODE},state="running"}}': "9x90",
    f'gpuops_acceptance_verdict{{{NODE},verdict="pass"}}': "1x90",
    f"gpuops_acceptance_finished_timestamp_seconds{{{NODE}}}": "0x90",
}


@pytest.fixture(scope="module")
def rules(ctl: Any) -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ctl.file(RULES).content_string)["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def series(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": value} for name, value in values.items()]


def expected(alert: str, rule: dict[str, Any], case: Case) -> list[dict[str, Any]]:
    _series, _time, labels, summary = case
    annotations = {"summary": summary, "runbook_url": rule["annotations"]["runbook_url"]}
    return [{"exp_labels": {"severity": rule["labels"]["severity"], **labels}, "exp_annotations": annotations}]


def test_promtool_raises_each_alert_and_none_on_a_healthy_cluster(ctl: Any, rules: dict[str, dict[str, Any]]) -> None:
    assert sorted(CASES) == sorted(rules), "each alert has its case"
    tests = [
        {
            "name": alert,
            "interval": "1m",
            "input_series": series(case[0]),
            "alert_rule_test": [
                {"eval_time": case[1], "alertname": alert, "exp_alerts": expected(alert, rules[alert], case)}
            ],
        }
        for alert, case in CASES.items()
    ]
    quiet: list[dict[str, Any]] = [
        {"eval_time": when, "alertname": alert, "exp_alerts": []} for alert in rules for when in ("30m", "80m")
    ]
    tests.append({"name": "healthy", "interval": "1m", "input_series": series(HEALTHY), "alert_rule_test": quiet})
    document = {"rule_files": [RULES], "evaluation_interval": "1m", "tests": tests}
    said = ctl.run(
        f"printf %s {shlex.quote(json.dumps(document))} > /tmp/rules.test.yml; promtool test rules /tmp/rules.test.yml"
    )
    assert said.rc == 0, said.stdout + said.stderr


def test_every_alert_has_a_runbook_that_exists(rules: dict[str, dict[str, Any]]) -> None:
    text = (PROJECT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    anchors = {title.strip().lower() for title in re.findall(r"^### (.+)$", text, re.MULTILINE)}
    links = {alert: rule["annotations"]["runbook_url"] for alert, rule in rules.items()}
    assert {alert: link for alert, link in links.items() if not re.search(r"/troubleshooting\.md#", link)} == {}
    assert {link.partition("#")[2] for link in links.values()} <= anchors
    assert anchors <= {alert.lower() for alert in rules}, "no runbook is left of an alert that is gone"
