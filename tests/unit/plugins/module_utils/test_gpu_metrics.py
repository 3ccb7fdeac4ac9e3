"""The text that Prometheus reads: units, labels, and no samples for what the driver does not report."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _gpu_metrics as metrics

UUID = "GPU-11111111-2222-3333-4444-555555555555"


def device(**changes: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "uuid": UUID,
        "name": 'NVIDIA "H100"',
        "pci": "0000:1b:00.0",
        "minor": 0,
        "memory_mib": 81559,
        "temperature_c": 31,
        "power_limit_w": 700.0,
        "ecc": {"enabled": True, "uncorrectable_volatile": 2, "correctable_aggregate": None},
        "remapped_rows": {"correctable": 0, "uncorrectable": 1, "pending": True, "failed": False},
        "retired_pages": None,
        "pcie": {"width": 8, "width_max": 16},
        "throttle_reasons": ["hw_thermal_slowdown"],
        **changes,
    }


def page(*devices: dict[str, Any], usage: str = "", **changes: Any) -> list[str]:
    gpu = {"state": "ok", "count": len(devices), "pci_count": 1, "devices": list(devices), "problems": [], **changes}
    fabric: dict[str, Any] = {"rdma": [], "problems": []}
    return metrics.render(gpu, fabric, metrics.parse_usage(usage), 0.25).splitlines()


def test_a_gpu_in_base_units() -> None:
    lines = page(device(), usage=f"{UUID}, 37, 1024, 412.50, 1980\n")
    labels = f'gpu="0",uuid="{UUID}"'
    for line in (
        f'gpuops_gpu_info{{{labels},name="NVIDIA \\"H100\\"",pci="0000:1b:00.0",minor="0"}} 1',
        f"gpuops_gpu_memory_bytes{{{labels}}} 85520809984",
        f"gpuops_gpu_memory_used_bytes{{{labels}}} 1073741824",
        f"gpuops_gpu_utilization_ratio{{{labels}}} 0.37",
        f"gpuops_gpu_power_watts{{{labels}}} 412.5",
        f"gpuops_gpu_sm_clock_hertz{{{labels}}} 1980000000",
        f'gpuops_gpu_ecc_errors{{{labels},error="uncorrectable",counter="volatile"}} 2',
        f'gpuops_gpu_remapped_rows{{{labels},kind="pending"}} 1',
        f'gpuops_gpu_throttle_reason{{{labels},reason="hw_thermal_slowdown"}} 1',
        f"gpuops_gpu_pcie_width{{{labels}}} 8",
        'gpuops_gpu_state{state="ok"} 1',
    ):
        assert line in lines


def test_what_is_not_reported_has_no_sample() -> None:
    lines = page(device(temperature_c=None, ecc=None, pcie=None), usage=f"{UUID}, [N/A], 0, [Unknown Error], 210\n")
    text = "\n".join(lines)
    for metric in ("temperature", "ecc_errors", "pcie_width", "utilization", "power_watts", "retired_pages"):
        assert f"gpuops_gpu_{metric}" not in text
    assert f'gpuops_gpu_memory_used_bytes{{gpu="0",uuid="{UUID}"}} 0' in lines


def test_problems_of_host_and_gpu_appear_once() -> None:
    problem = {"code": "ecc_uncorrectable", "device": 3, "detail": "x"}
    host = {"code": "gpu_missing", "device": None, "detail": "y"}
    lines = page(problems=[problem, dict(problem), host], state="degraded", count=0)
    assert lines.count('gpuops_gpu_problem{gpu="3",code="ecc_uncorrectable"} 1') == 1
    assert 'gpuops_gpu_problem{gpu="",code="gpu_missing"} 1' in lines


def test_fabric() -> None:
    gpu = {"state": "no_gpu", "count": 0, "pci_count": 0, "devices": [], "problems": []}
    port = {"port": 1, "state": "down", "rate_gbps": None}
    fabric = {
        "rdma": [{"name": "mlx5_0", "ports": [port]}],
        "problems": [{"code": "port_down", "device": "mlx5_0", "detail": "z"}],
    }
    lines = metrics.render(gpu, fabric, {}, 0.1).splitlines()
    assert 'gpuops_rdma_port_active{device="mlx5_0",port="1"} 0' in lines
    assert 'gpuops_fabric_problem{device="mlx5_0",code="port_down"} 1' in lines
    assert "rate_bits" not in "\n".join(lines)


def test_every_metric_has_help_and_type_once() -> None:
    lines = page(device(), device(index=1, uuid=None))
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")} == set(types)


def test_what_the_health_check_found_is_on_the_page() -> None:
    row = {"code": "xid_79", "device": "GPU 3", "detail": "gone", "severity": "drain"}
    page = metrics.Page(metrics.HELP)
    metrics.add_health(page, {"time": 1764471600.5, "findings": [row, {**row, "detail": "again"}]})
    lines = [line for line in page.text().splitlines() if not line.startswith("#")]
    assert lines == [
        'gpuops_node_health_finding{code="xid_79",device="GPU 3",severity="drain"} 1',
        "gpuops_node_health_timestamp_seconds 1764471600.5",
    ]
