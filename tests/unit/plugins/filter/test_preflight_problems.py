"""Preflight refuses everything at once and each message names host, value and variable."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.cluster.plugins.filter.preflight_problems import preflight_problems

SUPPORTED = [{"id": "debian", "version": "12"}, {"id": "ubuntu", "version": "24.04"}]


def host(name: str, **changes: Any) -> dict[str, Any]:
    """A host with nothing wrong; changes go into the probe, or to the top where the key is there."""
    probe = {
        "hostname": name,
        "os": {"id": "debian", "version": "12"},
        "python": "3.11.2",
        "free_mib": {"/": 50_000},
        "resolves": {name: ["10.0.0.1"]},
        "clock_offset_s": 0.0,
        "clock_error_s": 0.01,
    }
    top = {"host": name, "address": f"addr-{name}", "answers": True, "reason": "", "gpu_models": [], "multi_node": True}
    for key, value in changes.items():
        (top if key in top else probe)[key] = value
    return {**top, "probe": probe}


def judge(*hosts: dict[str, Any], **options: Any) -> list[str]:
    return preflight_problems(list(hosts), supported=SUPPORTED, **{"gpu_hosts": ["n1"], **options})


def test_nothing_wrong_says_nothing() -> None:
    assert judge(host("n1"), host("n2"), free_mib={"/": 1000}) == []


def test_a_silent_host_is_named_and_not_judged_further() -> None:
    silent = {"host": "n2", "address": "a2", "answers": False, "reason": "timed out", "probe": {}}
    assert judge(host("n1"), silent) == [
        "n2: does not answer (timed out); check ansible_host and ansible_user",
    ]


def test_system_python_and_disk_are_named_together() -> None:
    bad = host("n1", os={"id": "fedora", "version": "41"}, python="3.6.8", free_mib={"/": 10, "/var": 20})
    messages = judge(bad, free_mib={"/": 100, "/var": 100, "/usr": 100})
    assert len(messages) == 5
    assert "n1: runs fedora 41; supported are debian 12, ubuntu 24.04 (preflight_supported_systems)" in messages
    assert any("Python is 3.6.8, at least 3.9" in m for m in messages)
    assert "n1: 20 MiB free on /var, 100 wanted for /var (preflight_free_mib)" in messages
    assert "n1: 10 MiB free on /, 100 wanted for /usr (preflight_free_mib)" in messages


def test_python_versions_compare_as_numbers() -> None:
    assert judge(host("n1", python="3.10.1")) == []
    assert "has no Python" in judge(host("n1", python=None))[0]


def test_a_name_that_resolves_to_loopback_is_refused_only_with_several_nodes() -> None:
    bad = {"n1": ["127.0.1.1"], "ctl": []}
    messages = judge(host("n1", resolves=bad))
    assert any("resolves n1 to 127.0.1.1" in m for m in messages)
    assert any("cannot resolve ctl" in m for m in messages)
    assert judge(host("n1", resolves=bad, multi_node=False)) == []


def test_one_wrong_clock_is_named_alone() -> None:
    messages = judge(host("a"), host("b", clock_offset_s=-600.0), host("c", clock_offset_s=0.2))
    assert len(messages) == 1
    assert messages[0].startswith("b: its clock is -600.")


def test_a_slow_answer_does_not_make_a_clock_wrong() -> None:
    assert judge(host("a"), host("b", clock_offset_s=6.0, clock_error_s=3.0)) == []


def test_hosts_that_agree_are_right_even_where_the_control_node_is_wrong() -> None:
    assert judge(host("a", clock_offset_s=-900.0), host("b", clock_offset_s=-900.1)) == []


def test_two_hosts_with_one_address_or_one_name_are_refused() -> None:
    messages = judge(host("a", address="10.0.0.1"), host("b", address="10.0.0.1", hostname="a"))
    assert messages == [
        "a, b: have the same address 10.0.0.1; correct ansible_host",
        "a, b: have the same host name a; give each host its own with hostnamectl",
    ]


def test_mixed_models_are_refused_within_a_partition_only() -> None:
    hosts = [host("a", gpu_models=["H100"]), host("b", gpu_models=["A100"]), host("c")]
    assert judge(*hosts, partitions={"x": ["a"], "y": ["b", "c"]}) == []
    (message,) = judge(*hosts, partitions={"main": ["a", "b", "c"]})
    assert "partition main mixes GPU models (A100: b; H100: a)" in message


def test_no_gpu_hosts_and_a_misspelt_group_are_refused() -> None:
    messages = judge(host("n1"), groups=["all", "gpu_node", "storage"], gpu_hosts=[])
    assert messages == [
        "the inventory has a group gpu_node; rename it if gpu_nodes is meant",
        "the inventory has no GPU hosts: group gpu_nodes is missing or empty (preflight_gpu_hosts); "
        "groups seen: gpu_node, storage",
    ]
    assert judge(host("n1"), groups=["gpu_nodes", "gpu_nodes_spare", "slurm_controllers"]) == []


H100 = [{"architecture": "Hopper", "name": "NVIDIA H100 80GB HBM3"}]


def versions(**changes: Any) -> dict[str, Any]:
    return {"driver": "", "toolkit": "", "toolkit_runs": True, "pci": [], "wheels": {}, **changes}


def test_versions_that_do_not_go_together_are_named_once_for_all_hosts() -> None:
    hosts = [
        {**host(name), "devices": H100, "versions": versions(driver="535", toolkit="13.0")} for name in ("n1", "n2")
    ]
    (message,) = judge(*hosts)
    assert message.startswith("n1, n2: driver 535 does not run programs of CUDA 13.0")
    assert "driver 580 or newer with CUDA 13.0" in message


def test_without_a_driver_the_distributions_counts() -> None:
    wanted = versions(wheels={"torch": {"wheel": "13.0", "torch": "2.13.0"}})
    (message,) = judge({**host("n1"), "devices": [], "versions": wanted})
    assert "n1: driver 535 does not run PyTorch 2.13.0 for CUDA 13.0" in message
    ubuntu = {"id": "ubuntu", "version": "24.04"}
    assert not judge({**host("n1", os=ubuntu), "devices": [], "versions": wanted})


def test_without_a_driver_gpus_are_known_by_their_numbers_on_the_bus() -> None:
    bus = [f"/sys/bus/pci/devices/0000:1b:00.0/{line}" for line in ("vendor:0x10de", "device:0x1db6", "class:0x030200")]
    wanted = versions(driver="580", toolkit="13.0", pci=bus)
    (message,) = judge({**host("n1"), "devices": [], "versions": wanted})
    assert "10de:1db6 (Volta) needs CUDA older than 13.0" in message
