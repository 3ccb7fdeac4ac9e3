"""Findings of a node and what they do, on synthetic systems."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_health as health
from ansible_collections.gpuops.cluster.plugins.module_utils import _time_limited
from ansible_collections.gpuops.cluster.plugins.module_utils._node_checks import CHECKS, GPU_STATES, Finding, Settings


@pytest.fixture
def bare(tmp_path: Path) -> Settings:
    """A system without GPUs and without RDMA devices, whose clock is nobody's matter."""
    return {"sysfs_root": str(tmp_path), "proc_root": str(tmp_path), "nvidia_smi": "/nonexistent", "clock": False}


def examine(settings: Settings) -> list[Finding]:
    return health.examine(settings)[0]


def reason(findings: list[Finding], settings: Settings, *, job_over: bool = False) -> str:
    return health.drain_reason(health.draining(findings, settings, job_over=job_over))


def gpu_on_the_bus(root: Path) -> None:
    device = root / "bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        (device / name).write_text(f"{value}\n")


def test_a_host_without_gpus_is_healthy(bare: Settings) -> None:
    assert examine(bare) == []
    assert reason([], bare) == ""


def test_gpus_on_the_bus_without_a_driver_drain(bare: Settings, tmp_path: Path) -> None:
    gpu_on_the_bus(tmp_path)
    findings = examine(bare)
    assert findings[0].code in GPU_STATES
    assert reason(findings, bare).startswith("node_health: ")
    assert health.report(findings, bare)["healthy"] is False


def test_a_tool_that_hangs_is_a_finding_not_a_hang(bare: Settings, tmp_path: Path) -> None:
    gpu_on_the_bus(tmp_path)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    findings = examine({**bare, "nvidia_smi": str(tool), "timeout_s": 0.3})
    assert "no_answer" in {f.code for f in findings}


def test_a_missing_mount_drains_and_a_full_disk_warns(bare: Settings, tmp_path: Path) -> None:
    settings = {**bare, "mounts": ["/", str(tmp_path)], "free_mib": {str(tmp_path): 10**9, "/": 0}}
    findings = examine(settings)
    assert [(f.code, f.device) for f in findings] == [("mount_missing", str(tmp_path)), ("disk_full", str(tmp_path))]
    assert reason(findings, settings) == f"node_health: {f'mount_missing {tmp_path}'[:80]}"


def test_a_declared_rdma_device_that_is_not_there_drains(bare: Settings) -> None:
    findings = examine({**bare, "rdma_devices": ["mlx5_0"]})
    assert findings == [Finding("port_down", "mlx5_0", "RDMA device mlx5_0 is not there")]


def test_a_broken_check_warns_and_the_others_still_run(bare: Settings, tmp_path: Path) -> None:
    settings = {**bare, "free_mib": {"/nonexistent/path": 1}, "mounts": [str(tmp_path)]}
    findings = examine(settings)
    assert {f.code for f in findings} == {"check_failed", "mount_missing"}
    broken = [f for f in findings if f.code == "check_failed"]
    assert reason(broken, settings) == ""


def test_the_user_s_severity_wins(bare: Settings) -> None:
    finding = Finding("thermal_slowdown", "GPU 3", "hot")
    assert health.severity(finding, bare) == "warn"
    assert reason([finding], {**bare, "severities": {"thermal_slowdown": "drain"}})
    ignored = {**bare, "severities": {"thermal_slowdown": "ignore"}}
    assert health.report([finding], ignored)["findings"] == []


def test_an_unknown_code_only_warns(bare: Settings) -> None:
    assert health.severity(Finding("new_code", "", ""), bare) == "warn"


def test_the_reason_names_each_device_once_and_stays_short(bare: Settings) -> None:
    findings = [Finding("gpu_lost", f"GPU {i}", "lost") for i in range(8)] + [Finding("gpu_lost", "GPU 0", "again")]
    text = reason(findings, bare)
    assert text.count("GPU 0") == 1
    assert text.endswith("GPU 5 and 2 more")
    assert len(reason([Finding("gpu_lost", "x" * 500, "")] * 3, bare)) < 110


def test_every_problem_code_of_the_contract_has_a_severity() -> None:
    codes = (
        "gpu_lost gpu_missing unknown_error ecc_uncorrectable row_remap_pending row_remap_failed "
        "page_retirement_pending nvlink_inactive pcie_degraded thermal_slowdown power_brake mig_pending "
        "inforom_corrupt fabric_not_ready xid report_truncated not_permitted "
        "port_down port_initializing rate_degraded no_lid"
    )
    assert set(codes.split()) <= health.SEVERITIES.keys()


def hang(settings: Settings) -> Iterator[Finding]:
    time.sleep(settings["hang_s"])
    yield Finding("late", "", "")


def die(settings: Settings) -> Iterator[Finding]:
    os.kill(os.getpid(), settings["signal"])
    yield Finding("late", "", "")


def flood(settings: Settings) -> Iterator[Finding]:
    for number in range(settings["many"]):
        yield Finding("xid_79", f"GPU {number}", "x" * 100)


def test_a_check_that_hangs_warns_and_is_over_in_time(bare: Settings) -> None:
    start = time.monotonic()
    findings, stuck = health.examine({**bare, "hang_s": 60, "check_timeout_s": 0.2}, checks={"hang": hang})
    assert time.monotonic() - start < 20
    assert [(f.code, f.device) for f in findings] == [("check_failed", "hang")]
    assert "no answer within 0.2 s" in findings[0].detail
    assert stuck == {}, "a process that can be killed is not left behind"
    assert reason(findings, {**bare, "severities": {"check_failed": "drain"}}) == "", "whatever the settings say"


def test_a_check_that_dies_warns(bare: Settings) -> None:
    findings, _stuck = health.examine({**bare, "signal": signal.SIGSEGV}, checks={"die": die, **CHECKS})
    assert [(f.code, f.device) for f in findings] == [("check_failed", "die")]


def test_a_check_that_finds_without_end_is_cut(bare: Settings) -> None:
    findings, _stuck = health.examine({**bare, "many": 100000}, checks={"flood": flood})
    assert len(findings) == health.MOST


def test_a_file_server_that_hangs_is_told_by_its_path_and_asked_once(bare: Settings) -> None:
    """The process of the run before stands for one in uninterruptible sleep."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        stuck = {"mount /srv/data": (process.pid, _time_limited.started_at(process.pid))}
        findings, still = health.examine({**bare, "mounts": ["/srv/data", "/"]}, stuck)
    finally:
        process.kill()
        process.wait()
    assert [(f.code, f.device) for f in findings] == [("mount_hangs", "/srv/data")]
    assert still == stuck
    # The process is gone: the path is asked again.
    findings, still = health.examine({**bare, "mounts": ["/srv/data"]}, stuck)
    assert [f.code for f in findings] == ["mount_missing"] and still == {}


def test_gpus_that_should_be_there(bare: Settings, tmp_path: Path) -> None:
    gpu_on_the_bus(tmp_path)
    findings = examine({**bare, "gpu_count": 2})
    assert Finding("gpu_count", "", "the PCI bus shows 1 GPUs, node_health_gpu_count is 2") in findings
    assert "gpu_count" not in {f.code for f in examine({**bare, "gpu_count": 1})}


LOG = """\
[   12.3] nvidia-nvlink: Nvlink Core is being initialized
[  100.1] NVRM: Xid (PCI:0000:1b:00): 31, pid=4242, name=python, Ch 00000008, MMU Fault
[  200.2] NVRM: Xid (PCI:0000:1b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping
[  300.3] NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, name=python, GPU has fallen off the bus.
[  300.4] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.
[  400.5] NVRM: Xid (PCI:0000:3d:00): 162, something new
"""


def test_xids_of_the_kernel_log_by_gpu_and_severity(bare: Settings, tmp_path: Path) -> None:
    gpu_on_the_bus(tmp_path)
    (tmp_path / "log").write_text(LOG)
    settings = {**bare, "kernel_log": str(tmp_path / "log"), "severities": {"no_driver": "ignore"}}
    found = {f.code: f for f in examine(settings) if f.code.startswith("xid")}
    assert set(found) == {"xid_63", "xid_79", "xid_162"}, "Xid 31 is a fault of the program"
    assert found["xid_79"].device == "GPU 0" and "2 times" in found["xid_79"].detail
    assert found["xid_63"].detail.endswith("Row Remapper: New row marked for remapping")
    assert found["xid_162"].device == "GPU 0000:3d:00"
    words = {code: health.severity(finding, settings) for code, finding in found.items()}
    assert words == {"xid_63": "drain_after_job", "xid_79": "drain", "xid_162": "warn"}
    stricter = {**settings, "severities": {"xid": "drain", "xid_79": "warn"}}
    assert health.severity(found["xid_162"], stricter) == "drain"
    assert health.severity(found["xid_79"], stricter) == "warn"


def test_what_waits_for_the_job_s_end_drains_then(bare: Settings) -> None:
    findings = [Finding("row_remap_pending", "GPU 3", ""), Finding("thermal_slowdown", "GPU 1", "")]
    assert reason(findings, bare) == ""
    assert reason(findings, bare, job_over=True) == "node_health: row_remap_pending GPU 3"
    assert health.report(findings, bare)["healthy"] is True


def test_a_disk_that_went_read_only_drains(bare: Settings) -> None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    read_only = [fields[1] for fields in mounts if "ro" in fields[3].split(",") and os.access(fields[1], os.R_OK)]
    if not read_only:
        pytest.skip("nothing is mounted read-only here")
    assert "disk_read_only" in {f.code for f in examine({**bare, "free_mib": {read_only[0]: 0}})}


@pytest.mark.parametrize(("limit", "found"), [("unlimited", []), ("8388608", ["memlock_limited"])])
def test_locked_memory_is_what_slurmd_has(bare: Settings, tmp_path: Path, limit: str, found: list[str]) -> None:
    process = tmp_path / "77"
    process.mkdir()
    (process / "comm").write_text("slurmd\n")
    (process / "limits").write_text(f"Max open files  1024  4096  files\nMax locked memory  {limit}  {limit}  bytes\n")
    assert [f.code for f in examine({**bare, "memlock": True})] == found
    assert examine(bare) == [], "nobody needs it"


def test_the_clock_is_asked_of_the_kernel(bare: Settings) -> None:
    assert {f.code for f in examine({**bare, "clock": True})} <= {"clock_unsynchronized"}
