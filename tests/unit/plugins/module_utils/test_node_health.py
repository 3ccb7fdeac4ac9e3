"""Findings of a node and what they do, on synthetic systems."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_health as health
from ansible_collections.gpuops.cluster.plugins.module_utils._node_health import Finding


@pytest.fixture
def bare(tmp_path: Path) -> health.Settings:
    """A system without GPUs and without RDMA devices."""
    return {"sysfs_root": str(tmp_path), "proc_root": str(tmp_path), "nvidia_smi": "/nonexistent"}


def gpu_on_the_bus(root: Path) -> None:
    device = root / "bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        (device / name).write_text(f"{value}\n")


def test_a_host_without_gpus_is_healthy(bare: health.Settings) -> None:
    assert health.examine(bare) == []
    assert health.drain_reason([], bare) == ""


def test_gpus_on_the_bus_without_a_driver_drain(bare: health.Settings, tmp_path: Path) -> None:
    gpu_on_the_bus(tmp_path)
    findings = health.examine(bare)
    assert findings[0].code in health.GPU_STATES
    assert health.drain_reason(findings, bare).startswith("node_health: ")
    assert health.report(findings, bare)["healthy"] is False


def test_a_tool_that_hangs_is_a_finding_not_a_hang(bare: health.Settings, tmp_path: Path) -> None:
    gpu_on_the_bus(tmp_path)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    findings = health.examine({**bare, "nvidia_smi": str(tool), "timeout_s": 0.3})
    assert "no_answer" in {f.code for f in findings}


def test_a_missing_mount_drains_and_a_full_disk_warns(bare: health.Settings, tmp_path: Path) -> None:
    settings = {**bare, "mounts": ["/", str(tmp_path)], "free_mib": {str(tmp_path): 10**9, "/": 0}}
    findings = health.examine(settings)
    assert [(f.code, f.device) for f in findings] == [("mount_missing", str(tmp_path)), ("disk_full", str(tmp_path))]
    assert health.drain_reason(findings, settings) == f"node_health: mount_missing {tmp_path}"


def test_a_declared_rdma_device_that_is_not_there_drains(bare: health.Settings) -> None:
    findings = health.examine({**bare, "rdma_devices": ["mlx5_0"]})
    assert findings == [Finding("port_down", "mlx5_0", "RDMA device mlx5_0 is not there")]


def test_a_broken_check_warns_and_the_others_still_run(bare: health.Settings, tmp_path: Path) -> None:
    settings = {**bare, "free_mib": {"/nonexistent/path": 1}, "mounts": [str(tmp_path)]}
    findings = health.examine(settings)
    assert {f.code for f in findings} == {"check_failed", "mount_missing"}
    broken = [f for f in findings if f.code == "check_failed"]
    assert health.drain_reason(broken, settings) == ""


def test_the_user_s_severity_wins(bare: health.Settings) -> None:
    finding = Finding("thermal_slowdown", "GPU 3", "hot")
    assert health.severity(finding, bare) == "warn"
    assert health.drain_reason([finding], {**bare, "severities": {"thermal_slowdown": "drain"}})
    ignored = {**bare, "severities": {"thermal_slowdown": "ignore"}}
    assert health.report([finding], ignored)["findings"] == []


def test_an_unknown_code_only_warns(bare: health.Settings) -> None:
    assert health.severity(Finding("new_code", "", ""), bare) == "warn"


def test_the_reason_names_each_device_once_and_stays_short(bare: health.Settings) -> None:
    findings = [Finding("gpu_lost", f"GPU {i}", "lost") for i in range(8)] + [Finding("gpu_lost", "GPU 0", "again")]
    reason = health.drain_reason(findings, bare)
    assert reason.count("GPU 0") == 1
    assert reason.endswith("GPU 5 and 2 more")


def test_every_problem_code_of_the_contract_has_a_severity() -> None:
    codes = (
        "gpu_lost gpu_missing unknown_error ecc_uncorrectable row_remap_pending row_remap_failed "
        "page_retirement_pending nvlink_inactive pcie_degraded thermal_slowdown power_brake mig_pending "
        "inforom_corrupt fabric_not_ready xid report_truncated not_permitted "
        "port_down port_initializing rate_degraded no_lid"
    )
    assert set(codes.split()) <= health.SEVERITIES.keys()
