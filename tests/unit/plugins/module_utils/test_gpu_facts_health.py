# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each problem code, by a recording in which one value was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures, pci_tree
from ansible_collections.gpuops.cluster.tests.unit.support.replay import codes, facts_of
from ansible_collections.gpuops.cluster.tests.unit.support.report import A100_PCIE, H100, change, only, split, without

if TYPE_CHECKING:
    from pathlib import Path

LOAD = {"performance_state": "P0", "gpu_util": "97 %", "clocks_event_reason_gpu_idle": "Not Active"}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"dram_uncorrectable": "2"}, ["ecc_uncorrectable"]),
        ({"sram_uncorrectable_parity": "1"}, ["ecc_uncorrectable"]),
        ({"dram_correctable": "77"}, []),
        ({"remapped_row_pending": "Yes"}, ["row_remap_pending"]),
        ({"remapped_row_failure": "Yes"}, ["row_remap_failed"]),
        ({"remapped_row_unc": "3"}, []),
        ({"pending_retirement": "Yes"}, ["page_retirement_pending"]),
        ({"pending_blacklist": "Yes"}, ["page_retirement_pending"]),
        ({"pending_mig": "Enabled"}, ["mig_pending"]),
        ({"clocks_event_reason_hw_thermal_slowdown": "Active"}, ["thermal_slowdown"]),
        ({"clocks_event_reason_sw_thermal_slowdown": "Active"}, ["thermal_slowdown"]),
        ({"clocks_event_reason_hw_power_brake_slowdown": "Active"}, ["power_brake"]),
        ({"clocks_event_reason_hw_slowdown": "Active"}, ["thermal_slowdown"]),
        (
            {"clocks_event_reason_hw_slowdown": "Active", "clocks_event_reason_hw_power_brake_slowdown": "Active"},
            ["power_brake"],
        ),
        ({"clocks_event_reason_sw_power_cap": "Active"}, []),
        ({"gpu_recovery_action": "Reset"}, ["xid"]),
        ({"reset_required": "Yes"}, ["xid"]),
        ({"status": "Failure"}, ["fabric_not_ready"]),
        ({"route_unhealthy": "True"}, ["fabric_not_ready"]),
        ({"bandwidth": "Degraded"}, ["fabric_not_ready"]),
        ({"img_version": "Corrupted infoROM"}, ["inforom_corrupt"]),
        ({"uuid": "Unknown Error"}, ["unknown_error"]),
        ({"gpu_temp": "[Unknown Error]"}, ["unknown_error"]),
        ({"total": "GPU is lost"}, ["gpu_lost"]),
        ({"product_name": "ERR!"}, ["unknown_error"]),
        ({"persistence_mode": "Insufficient Permissions"}, ["not_permitted"]),
        ({"vbios_version": "Unknown Error"}, []),  # nothing that the contract returns
        ({"max_link_gen": "Requested functionality has been deprecated"}, []),
        ({"current_link_width": "8x"}, ["pcie_degraded"]),
        ({"current_link_gen": "1"}, []),  # idle
        ({"current_link_gen": "1", **LOAD}, ["pcie_degraded"]),
        ({"current_link_gen": "4", **LOAD}, []),
        ({"current_link_gen": "1", "gpu_util": "60 %"}, ["pcie_degraded"]),
        ({"current_link_gen": "1", "gpu_util": "3 %"}, []),  # a glance at the display
        ({"current_link_gen": "1", **LOAD, "performance_state": "P8"}, []),
    ],
    ids=lambda value: ",".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, dict) else None,
)
def test_one_value(values: dict[str, str], found: list[str]) -> None:
    facts = facts_of(change(H100, 5, **values))
    assert codes(facts) == [(code, 5) for code in found]
    assert facts["devices"][5]["problems"] == found
    assert facts["count"] == 8
    assert facts["state"] == ("degraded" if found else "ok")


def test_lifetime_totals_are_no_problem() -> None:
    head, gpus, tail = split(H100)
    before, after = gpus[2].split("<aggregate>", 1)
    gpus[2] = before + "<aggregate>" + after.replace("<dram_uncorrectable>0", "<dram_uncorrectable>9", 1)
    facts = facts_of((head + "\n".join(gpus) + tail).encode())
    assert facts["devices"][2]["ecc"]["uncorrectable_aggregate"] == 9
    assert facts["problems"] == []


def test_a_fabric_in_progress_is_not_ready() -> None:
    head, gpus, tail = split(H100)
    gpus[0] = gpus[0].replace("<state>Completed</state>", "<state>In Progress</state>")
    assert codes(facts_of((head + "\n".join(gpus) + tail).encode())) == [("fabric_not_ready", 0)]


def test_an_uncorrectable_error_of_a_mig_device_counts() -> None:
    name = "a100-sxm4-40gb-1x-driver510.47-mig-2.xml"
    report = fixtures.data("nvidia-smi-xml", name).decode()
    report = report.replace("<sram_uncorrectable>0", "<sram_uncorrectable>4", 1)
    assert codes(facts_of(report.encode())) == [("ecc_uncorrectable", 0)]


def test_a_lost_gpu_is_lost_in_every_value_and_told_once() -> None:
    report = change(
        H100, 1, **dict.fromkeys(("uuid", "product_name", "minor_number", "gpu_temp", "total"), "GPU is lost")
    )
    facts = facts_of(report)
    assert codes(facts) == [("gpu_lost", 1)]
    device = facts["devices"][1]
    assert device["uuid"] is None and device["name"] is None and device["minor"] is None
    assert device["pci"] == "0000:05:00.0"
    assert facts["devices"][2]["uuid"].startswith("GPU-")


def test_fewer_than_announced() -> None:
    facts = facts_of(only(H100, 0, 1, 2).encode())
    assert codes(facts) == [("gpu_missing", None)]
    assert "8" in facts["reason"] and "3" in facts["reason"]


def test_fewer_than_pci_shows(tmp_path: Path) -> None:
    for bus in ("04", "05", "0b", "0c"):
        pci_tree.add(tmp_path, f"0000:{bus}:00.0")
    report = only(H100, 0, 1, 2).replace("<attached_gpus>8", "<attached_gpus>3")
    facts = facts_of(report.encode(), sysfs_root=str(tmp_path))
    assert facts["state"] == "degraded"
    assert codes(facts) == [("gpu_missing", None)]
    assert "0000:0c:00.0" in facts["problems"][0]["detail"]


def test_a_missing_element_is_null() -> None:
    for tag in ("minor_number", "ecc_errors", "pci", "mig_mode", "fabric", "clocks_event_reasons", "driver_version"):
        facts = facts_of(without(H100, tag))
        assert facts["count"] == 8 and facts["state"] == "ok", tag


def test_a_gpu_that_fell_off_the_bus(tmp_path: Path) -> None:
    """sysfs still lists it, and a report made just before describes it."""
    for address in ("0000:04:00.0", "0000:05:00.0"):
        pci_tree.add(tmp_path, address)
    (tmp_path / "bus/pci/devices/0000:05:00.0/config").write_bytes(b"\xff" * 256)
    (tmp_path / "bus/pci/devices/0000:04:00.0/config").write_bytes(b"\xde\x10\x30\x23" * 64)
    assert codes(facts_of(H100.encode(), sysfs_root=str(tmp_path))) == [("gpu_lost", 1)]


def test_the_power_limit_as_driver_610_nests_it() -> None:
    report = H100.replace("<current_power_limit>700.00 W", "<gpu_ceiling><current_power_limit>650.00 W", 1)
    report = report.replace("</default_power_limit>", "</default_power_limit></gpu_ceiling>", 1)
    limits = [device["power_limit_w"] for device in facts_of(report.encode())["devices"]]
    assert limits == [650.0] + [700.0] * 7


# The width of a PCIe link


def test_a_narrow_slot_is_no_fault_of_its_card(tmp_path: Path) -> None:
    """Eight of sixteen lanes: a fault where the slot has sixteen, normal where it has eight."""
    narrow = change(A100_PCIE, 0, current_link_width="8x", virtualization_mode="None")
    assert facts_of(narrow)["problems"] == []  # nobody knows the slot
    for lanes, found in (("8", []), ("16", [("pcie_degraded", 0)])):
        root = tmp_path / lanes
        card = root / "devices/pci0000:20/0000:20:01.1/0000:21:01.0"
        card.mkdir(parents=True)
        (card.parent / "max_link_width").write_text(f"{lanes}\n")
        for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x1db6"), ("numa_node", "-1")):
            (card / name).write_text(f"{text}\n")
        (root / "bus/pci/devices").mkdir(parents=True)
        (root / "bus/pci/devices/0000:21:01.0").symlink_to(card)
        assert codes(facts_of(narrow, sysfs_root=str(root))) == found


def test_a_guest_sees_no_real_slot(tmp_path: Path) -> None:
    narrow = change(A100_PCIE, 0, current_link_width="8x")  # Pass-Through
    pci_tree.add(tmp_path, "0000:21:01.0", max_link_width="16")
    (tmp_path / "bus/pci/devices/max_link_width").write_text("16\n")
    assert facts_of(narrow, sysfs_root=str(tmp_path))["problems"] == []


def test_an_equal_card_stands_for_an_unknown_slot() -> None:
    report = fixtures.data("nvidia-smi-xml", "rtx2080ti-2x-driver535.146.xml").decode()
    assert codes(facts_of(change(report, 1, current_link_width="4x"))) == [("pcie_degraded", 1)]


# Place


def test_sysfs_knows_places_better_than_the_matrix(tmp_path: Path) -> None:
    """nvidia-smi cuts lists of CPUs to six entries."""
    pci_tree.add(tmp_path, "0000:04:00.0", numa_node="1", local_cpulist="1,3,5,7,9,11,13,15")
    pci_tree.add(tmp_path, "0000:05:00.0", numa_node="-1")
    topo = fixtures.data("nvidia-smi-topo", "h100-sxm5-8x-12nic-mp-dell.txt")
    facts = facts_of(H100.encode(), sysfs_root=str(tmp_path), topo=topo)
    first, second = facts["devices"][:2]
    assert (first["numa_node"], first["cpus"]) == (1, "1,3,5,7,9,11,13,15")
    assert (second["numa_node"], second["cpus"]) == (0, "0,2,4,6,8,10")


def test_topology_with_a_lost_link() -> None:
    text = fixtures.text("nvidia-smi-topo", "h100-sxm5-8x-8nic-driver570-spaces.txt")
    facts = facts_of(H100.encode(), topo=text.encode())
    assert facts["state"] == "ok"
    assert facts["topology"]["nvlink"] == {"links_per_gpu": 18, "generation": 4}
    assert facts["topology"]["nics"][3] == {
        "name": "mlx5_3",
        "gpus": ["NODE", "NODE", "NODE", "PIX", "SYS", "SYS", "SYS", "SYS"],
    }
    lines = text.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("GPU2 "))
    lines[row] = lines[row].replace("NV18", "NODE")
    for number in range(row - 2, row + 6):
        cells = lines[number].split()
        if number != row:
            cells[3] = "NODE"
            lines[number] = "\t".join(cells)
    assert codes(facts_of(H100.encode(), topo="\n".join(lines).encode())) == [("nvlink_inactive", 2)]


def test_a_matrix_of_pci_only_raises_no_alarm() -> None:
    topo = fixtures.data("nvidia-smi-topo", "h100-sxm5-8x-12nic-mp-dell.txt")
    facts = facts_of(H100.encode(), topo=topo)
    assert facts["state"] == "ok" and facts["topology"]["nvlink"] is None
