# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ``<gpu>`` of the report as the device of the contract, across the schemas of drivers 352 to 610."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._nvidia_smi_values import Values
from ._pci import normalise

if TYPE_CHECKING:
    from ._nvidia_smi_xml import Node

# Drivers up to 530 say throttle, later ones event.
_REASONS = (("clocks_event_reasons", "clocks_event_reason_"), ("clocks_throttle_reasons", "clocks_throttle_reason_"))
CLEARLY_BUSY = 10  # per cent of use, whatever the clocks' reason of the same moment says
_FABRIC_READY = {"state": {"completed"}, "status": {"success"}}
_FABRIC_HEALTHY = {
    "summary": {"healthy"},
    "bandwidth": {"full"},
    "route_recovery_in_progress": {"false"},
    "route_unhealthy": {"false"},
    "access_timeout_recovery": {"false"},
    "incorrect_configuration": {"false"},
}


@dataclass
class Device:
    """A device as facts, and what only the judgement of its health needs."""

    facts: dict[str, Any]
    refused: dict[str, list[str]]  # problem code -> fields whose value was replaced by that sentence
    inforom: list[str]  # parts of the infoROM that are corrupted
    fabric: list[str]  # what keeps the NVLink fabric of this GPU from being ready
    action: str | None  # what the driver asks for: reset, reboot, …
    busy: bool
    virtual: bool  # the guest of a hypervisor sees the GPU, and no real slot
    mig_uncorrectable: int
    unrepairable: bool

    @property
    def name(self) -> str:
        return self.facts["name"] or ""


def _mig(node: Node, values: Values) -> dict[str, Any]:
    devices = []
    container = node.find("mig_devices")
    for instance in container.all("mig_device") if container is not None else []:
        mig = Values(instance)
        devices.append(
            {
                "uuid": mig.text("uuid"),
                "gpu_instance": mig.integer("gpu_instance_id"),
                "compute_instance": mig.integer("compute_instance_id"),
                "profile": None,  # not in the report: added from nvidia-smi -L
                "memory_mib": mig.integer("fb_memory_usage/total"),
            }
        )
    return {
        "enabled": values.flag("mig_mode/current_mig"),
        "pending": values.flag("mig_mode/pending_mig"),
        "devices": devices,
    }


def _mig_uncorrectable(node: Node) -> int:
    container = node.find("mig_devices")
    instances = container.all("mig_device") if container is not None else []
    counts = (Values(instance).integer("ecc_error_count/volatile_count/sram_uncorrectable") for instance in instances)
    return sum(count for count in counts if count)


def _old_counter(values: Values, path: str) -> int | None:
    """A counter of drivers up to 440: a total, or its parts where the GPU has no total."""
    total = values.integer(f"{path}/total")
    if total is not None:
        return total
    parts = ("device_memory", "register_file", "l1_cache", "l2_cache", "texture_memory", "texture_shm", "cbu")
    return values.total(*(f"{path}/{part}" for part in parts))


def _ecc(values: Values) -> dict[str, Any]:
    ecc: dict[str, Any] = {"enabled": values.flag("ecc_mode/current_ecc")}
    for kind, old in (("uncorrectable", "double_bit"), ("correctable", "single_bit")):
        for span in ("volatile", "aggregate"):
            path = f"ecc_errors/{span}"
            parts = [f"{path}/sram_{kind}", f"{path}/dram_{kind}"]
            if kind == "uncorrectable":  # split in two since driver 550
                parts += [f"{path}/sram_uncorrectable_parity", f"{path}/sram_uncorrectable_secded"]
            count = values.total(*parts)
            ecc[f"{kind}_{span}"] = count if count is not None else _old_counter(values, f"{path}/{old}")
    return ecc


def _known(record: dict[str, Any]) -> dict[str, Any] | None:
    """The record, or null when nothing of it is known: this GPU has no such thing."""
    return record if any(value is not None for value in record.values()) else None


def _remapped_rows(values: Values) -> dict[str, Any] | None:
    return _known(
        {
            "correctable": values.integer("remapped_rows/remapped_row_corr"),
            "uncorrectable": values.integer("remapped_rows/remapped_row_unc"),
            "pending": values.flag("remapped_rows/remapped_row_pending"),
            "failed": values.flag("remapped_rows/remapped_row_failure"),
        }
    )


def _retired_pages(values: Values) -> dict[str, Any] | None:
    pending = values.flag("retired_pages/pending_retirement")
    blacklist = values.flag("retired_pages/pending_blacklist")
    return _known(
        {
            "single_bit": values.integer("retired_pages/multiple_single_bit_retirement/retired_count"),
            "double_bit": values.integer("retired_pages/double_bit_retirement/retired_count"),
            "pending": blacklist if pending is None else pending or bool(blacklist),
        }
    )


def _pcie(values: Values) -> dict[str, int | None]:
    link = "pci/pci_gpu_link_info"
    return {
        "generation": values.integer(f"{link}/pcie_gen/current_link_gen"),
        "generation_max": values.integer(f"{link}/pcie_gen/max_link_gen"),
        "width": values.integer(f"{link}/link_widths/current_link_width"),
        "width_max": values.integer(f"{link}/link_widths/max_link_width"),
    }


def _throttle_reasons(node: Node, values: Values) -> list[str]:
    for container, prefix in _REASONS:
        element = node.find(container)
        if element is not None:
            reasons = [child.tag for child in element.children if child.tag.startswith(prefix)]
            return [reason[len(prefix) :] for reason in reasons if values.flag(f"{container}/{reason}")]
    return []


def _fabric(values: Values) -> list[str]:
    """What the report says against the fabric. N/A: there is none, or this driver does not tell."""
    found = []
    for path, wanted in (("fabric", _FABRIC_READY), ("fabric/health", _FABRIC_HEALTHY)):
        for field, good in wanted.items():
            text = values.text(f"{path}/{field}")
            if text is not None and text.lower() not in good:
                found.append(f"{field} is {text}")
    return found


def _inforom(node: Node) -> list[str]:
    """Parts of the infoROM whose version reads as a corruption."""
    values = Values(node)
    for part in ("img_version", "oem_object", "ecc_object", "pwr_object"):
        values.text(f"inforom_version/{part}")
    return values.refused.get("inforom_corrupt", [])


def _busy(values: Values, reasons: list[str]) -> bool:
    """Whether the GPU is at work, so that its link must run at full speed. In doubt it is not."""
    if values.text("performance_state") not in {"P0", "P1", "P2", "P3"}:
        return False
    percent = values.integer("utilization/gpu_util") or 0
    return percent >= CLEARLY_BUSY or (percent > 0 and "gpu_idle" not in reasons)


def _action(values: Values) -> str | None:
    action = values.text("gpu_recovery_action")
    if action is None and values.flag("gpu_reset_status/reset_required"):
        return "Reset"
    return action


def describe(index: int, node: Node) -> Device:
    """Describe the GPU of one element. Values that are not there are null."""
    values, other = Values(node), Values(node)  # refused values count only for what the contract returns
    reasons = _throttle_reasons(node, values)
    facts = {
        "index": index,
        "minor": values.integer("minor_number"),
        "uuid": values.text("uuid"),
        "name": values.text("product_name"),
        "architecture": values.text("product_architecture"),
        "pci": normalise(values.text("pci/pci_bus_id")) or normalise(node.id),
        "memory_mib": values.integer("fb_memory_usage/total"),
        "numa_node": None,
        "cpus": None,
        "persistence": values.flag("persistence_mode"),
        "mig": _mig(node, values),
        "ecc": _ecc(values),
        "remapped_rows": _remapped_rows(values),
        "retired_pages": _retired_pages(values),
        "pcie": _pcie(values),
        "power_limit_w": values.number(
            "gpu_power_readings//current_power_limit",  # one level deeper since driver 610
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
        "temperature_c": values.integer("temperature/gpu_temp"),
        "throttle_reasons": reasons,
        "problems": [],
    }
    return Device(
        facts=facts,
        refused=values.refused,
        inforom=_inforom(node),
        fabric=_fabric(other),
        action=_action(other),
        busy=_busy(other, reasons),
        virtual=other.text("gpu_virtualization_mode/virtualization_mode") is not None,
        mig_uncorrectable=_mig_uncorrectable(node),
        unrepairable=bool(other.flag("ecc_errors/unrepairable_memory")),
    )
