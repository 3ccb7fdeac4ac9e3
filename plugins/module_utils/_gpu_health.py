# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of GPUs, derived from their facts. One rule, one function; the codes are those of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._nvidia_smi_device import Device

_REFUSALS = {
    "gpu_lost": "GPU is lost",
    "unknown_error": "Unknown Error",
    "not_permitted": "Insufficient Permissions",
    "inforom_corrupt": "Corrupted infoROM",
}


def _refused(device: Device) -> Iterator[tuple[str, str]]:
    for code, fields in device.refused.items():
        more = f" and {len(fields) - 4} more" if len(fields) > 4 else ""
        yield code, f"{_REFUSALS[code]} in place of {', '.join(fields[:4])}{more}"


def _ecc(device: Device) -> Iterator[tuple[str, str]]:
    count = device.facts["ecc"]["uncorrectable_volatile"] or device.mig_uncorrectable
    if count:
        yield "ecc_uncorrectable", f"{count} uncorrectable memory errors since the last reset"


def _rows(device: Device) -> Iterator[tuple[str, str]]:
    rows = device.facts["remapped_rows"] or {}
    if rows.get("failed"):
        yield "row_remap_failed", "a memory row could not be remapped: the GPU is to be replaced"
    elif device.unrepairable:
        yield "row_remap_failed", "the GPU has memory that cannot be repaired"
    if rows.get("pending"):
        yield "row_remap_pending", "a memory row is remapped at the next reset of the GPU"


def _pages(device: Device) -> Iterator[tuple[str, str]]:
    if (device.facts["retired_pages"] or {}).get("pending"):
        yield "page_retirement_pending", "a memory page is retired at the next reboot"


def _throttling(device: Device) -> Iterator[tuple[str, str]]:
    reasons = set(device.facts["throttle_reasons"])
    thermal = sorted(reasons & {"hw_thermal_slowdown", "sw_thermal_slowdown"})
    brake = "hw_power_brake_slowdown" in reasons
    if not thermal and not brake and "hw_slowdown" in reasons:  # old GPUs do not tell which of the two
        thermal = ["hw_slowdown"]
    if thermal:
        yield "thermal_slowdown", f"clocks are lowered: {', '.join(thermal)}"
    if brake:
        yield "power_brake", "clocks are lowered: hw_power_brake_slowdown, asserted by the power supply or the board"


def _mig(device: Device) -> Iterator[tuple[str, str]]:
    mig = device.facts["mig"]
    if None not in (mig["enabled"], mig["pending"]) and mig["enabled"] != mig["pending"]:
        wanted = "enabled" if mig["pending"] else "disabled"
        yield "mig_pending", f"MIG mode is {wanted} at the next reset of the GPU"


def _fabric(device: Device) -> Iterator[tuple[str, str]]:
    if device.fabric:
        yield "fabric_not_ready", f"NVLink fabric: {', '.join(device.fabric)}"


def _inforom(device: Device) -> Iterator[tuple[str, str]]:
    if device.inforom:
        yield "inforom_corrupt", f"the infoROM is corrupted: {', '.join(device.inforom)}"


def _action(device: Device) -> Iterator[tuple[str, str]]:
    if device.action is not None:
        yield "xid", f"the driver asks for an action after an error: {device.action}"


def _pcie_generation(device: Device) -> Iterator[tuple[str, str]]:
    """Only under load: an idle GPU lowers its generation."""
    pcie = device.facts["pcie"]
    now, most = pcie["generation"], pcie["generation_max"]
    if device.busy and now and most and now < most:
        yield "pcie_degraded", f"PCIe generation {now} of {most} under load"


RULES: tuple[Callable[[Device], Iterator[tuple[str, str]]], ...] = (
    _refused,
    _ecc,
    _rows,
    _pages,
    _throttling,
    _mig,
    _inforom,
    _fabric,
    _action,
    _pcie_generation,
)


def device_problems(device: Device) -> Iterator[tuple[str, str]]:
    """Problems that one device shows by itself, as code and detail."""
    for rule in RULES:
        yield from rule(device)


def narrow_links(devices: list[Device], slots: dict[str, int], module: Callable[[str], bool]) -> dict[int, str]:
    """Devices whose PCIe link is narrower than card and slot offer, with the evidence.

    nvidia-smi's maximum is that of the card alone: eight of sixteen lanes are normal in a slot of eight, and several
    healthy machines report just that. So the slot is asked: by sysfs where the machine is real; else the widest
    equal card of this host stands for it; and modules on a baseboard (SXM) always have all lanes.
    """
    found: dict[int, str] = {}
    for index, device in enumerate(devices):
        pcie = device.facts["pcie"]
        now, most = pcie["width"], pcie["width_max"]
        if not now or not most:
            continue
        peers = [peer.facts["pcie"]["width"] or 0 for peer in devices if peer.name == device.name]
        slot = None if device.virtual else slots.get(device.facts["pci"] or "")
        if slot is not None:
            offered = min(most, slot)
        elif module(device.name):
            offered = most
        else:
            offered = max(peers)
        if now < offered:
            found[index] = f"{now} PCIe lanes where {offered} are offered"
    return found


def problem(code: str, device: int | None, detail: str) -> dict[str, Any]:
    return {"code": code, "device": device, "detail": detail}
