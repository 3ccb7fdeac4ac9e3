"""Compute mode, power limit, ECC and MIG layout: what differs is set and read back, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._gpu_settings import (
    FIELDS,
    Failed,
    layouts,
    problems,
    settle,
)


class Machine:
    """GPUs that nvidia-smi shows and sets; what it was asked to change is in calls."""

    def __init__(self, count: int = 2, busy: str = "", stubborn: bool = False, reset: bool = False) -> None:
        self.gpus = [
            {
                "index": str(number),
                "uuid": f"GPU-{number}",
                "compute_mode": "Default",
                "power.limit": "700.00",
                "ecc.mode.current": "Enabled",
                "ecc.mode.pending": "Enabled",
                "mig.mode.current": "Disabled",
                "mig.mode.pending": "Disabled",
            }
            for number in range(count)
        ]
        self.layout: list[list[str]] = [[] for _unused in range(count)]
        self.busy, self.stubborn, self.reset = busy, stubborn, reset
        self.calls: list[str] = []

    def __call__(self, words: list[str]) -> tuple[int, str]:
        if words[0].startswith("--query-gpu"):
            return 0, "".join(", ".join(gpu[name] for name in FIELDS) + "\n" for gpu in self.gpus)
        if words[0].startswith("--query-compute-apps"):
            return 0, self.busy
        if words == ["-L"]:
            lines = []
            for gpu, profiles in zip(self.gpus, self.layout):
                lines.append(f"GPU {gpu['index']}: NVIDIA H100 80GB HBM3 (UUID: {gpu['uuid']})")
                lines += [f"  MIG {name:<12}Device  {n}: (UUID: MIG-{n})" for n, name in enumerate(profiles)]
            return 0, "\n".join(lines) + "\n"
        self.calls.append(" ".join(words))
        return self.change(words)

    def change(self, words: list[str]) -> tuple[int, str]:
        index = int(words[words.index("-i") + 1])
        gpu = self.gpus[index]
        if self.stubborn:
            return 0, "All done.\n"
        if "-c" in words:
            gpu["compute_mode"] = {"EXCLUSIVE_PROCESS": "Exclusive_Process", "DEFAULT": "Default"}[words[-1]]
        elif "-pl" in words:
            if float(words[-1]) > 700:
                return 2, "Provided power limit 900.00 W is not a valid power limit\n"
            gpu["power.limit"] = f"{float(words[-1]):.2f}"
        elif "-e" in words:
            gpu["ecc.mode.pending"] = "Enabled" if words[-1] == "1" else "Disabled"
        elif "-mig" in words:
            gpu["mig.mode.pending"] = "Enabled" if words[-1] == "1" else "Disabled"
            if not self.reset:
                gpu["mig.mode.current"] = gpu["mig.mode.pending"]
        elif "-dci" in words:
            return (0, "") if self.layout[index] else (6, "No compute instances found: Not Found\n")
        elif "-dgi" in words:
            self.layout[index] = []
        elif "-cgi" in words:
            self.layout[index] = words[words.index("-cgi") + 1].split(",")
        return 0, ""


def wanted(**changed: Any) -> dict[str, Any]:
    return {"compute_mode": "", "power_limit_w": 0, "ecc": "", "mig_layout": {}, **changed}


def test_nothing_wanted_changes_nothing() -> None:
    machine = Machine()
    assert settle(wanted(), machine) == {"changed": [], "waiting": [], "wrong": []}
    assert not machine.calls


def test_modes_and_limits_are_set_once() -> None:
    machine = Machine()
    wish = wanted(compute_mode="exclusive_process", power_limit_w=500.0)
    result = settle(wish, machine)
    assert result["changed"][0] == "GPU 0: compute mode Default -> Exclusive_Process"
    assert len(machine.calls) == 4
    assert not result["wrong"]
    assert settle(wish, machine)["changed"] == []
    assert len(machine.calls) == 4


def test_check_mode_says_what_would_change() -> None:
    machine = Machine(1)
    result = settle(wanted(power_limit_w=500), machine, check=True)
    assert result["changed"] == ["GPU 0: power limit 700.00 -> 500.00 W"]
    assert not machine.calls


def test_ecc_waits_for_a_reboot() -> None:
    machine = Machine(1)
    result = settle(wanted(ecc="disabled"), machine)
    assert result["changed"] == ["GPU 0: ECC Enabled -> Disabled"]
    assert result["waiting"] == ["GPU 0: ECC is Enabled, Disabled after a reboot"]
    again = settle(wanted(ecc="disabled"), machine)
    assert (again["changed"], again["waiting"]) == ([], result["waiting"])


def test_mig_devices_are_made_and_made_anew_after_a_reboot() -> None:
    machine = Machine()
    wish = wanted(mig_layout={"0": ["3g.40gb", "1g.10gb"], "all": []})
    result = settle(wish, machine)
    assert machine.layout == [["3g.40gb", "1g.10gb"], []], "large ones first"
    assert result["changed"] == [
        "GPU 0: MIG mode Disabled -> Enabled",
        "GPU 0: MIG devices none -> 1g.10gb, 3g.40gb",
    ]
    assert settle(wish, machine)["changed"] == []
    machine.layout[0] = []
    assert settle(wish, machine)["changed"] == ["GPU 0: MIG devices none -> 1g.10gb, 3g.40gb"]


def test_another_layout_replaces_the_old_one_and_an_empty_one_switches_mig_off() -> None:
    machine = Machine(1)
    settle(wanted(mig_layout={"all": ["3g.40gb"]}), machine)
    settle(wanted(mig_layout={"all": ["7g.80gb"]}), machine)
    assert machine.calls[-3:] == ["mig -i 0 -dci", "mig -i 0 -dgi", "mig -i 0 -cgi 7g.80gb -C"]
    settle(wanted(mig_layout={"all": []}), machine)
    assert machine.gpus[0]["mig.mode.current"] == "Disabled"
    assert machine.layout == [[]]


def test_a_mode_that_needs_a_reset_is_pending_and_makes_no_devices_yet() -> None:
    machine = Machine(1, reset=True)
    result = settle(wanted(mig_layout={"all": ["3g.40gb"]}), machine)
    assert result["waiting"] == ["GPU 0: MIG mode is Disabled, Enabled after a reboot"]
    assert not result["wrong"]


def test_mig_is_not_changed_under_running_programs() -> None:
    machine = Machine(1, busy="GPU-0, 4711\nGPU-1, [N/A]\n")
    result = settle(wanted(mig_layout={"all": ["3g.40gb"]}), machine)
    assert "programs use it; drain the host first" in result["wrong"][0]
    assert not machine.calls


def test_what_nvidia_smi_refuses_is_said_in_its_words() -> None:
    result = settle(wanted(power_limit_w=900), Machine(1))
    assert "is not a valid power limit" in result["wrong"][0]
    with pytest.raises(Failed, match="exit code 9"):
        settle(wanted(ecc="enabled"), lambda words: (9, ""))


def test_what_was_set_and_does_not_show_is_wrong() -> None:
    result = settle(wanted(power_limit_w=500), Machine(1, stubborn=True))
    assert result["wrong"] == ["GPU 0: power limit 700.00 -> 500.00 W: set, but it does not show"]


def test_layouts_are_read_from_a_recording() -> None:
    recording = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-0)\n"
        "  MIG 1g.10gb     Device  1: (UUID: MIG-1)\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
    )
    assert layouts(lambda words: (0, recording)) == {"0": ["1g.10gb", "3g.40gb"], "1": []}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"compute_mode": "shared"}, "nvidia_driver_compute_mode is 'shared'"),
        ({"ecc": "on"}, "nvidia_driver_ecc is 'on'"),
        ({"power_limit_w": -1}, "nvidia_driver_power_limit_w is -1"),
        ({"mig_layout": {"first": []}}, "has the key 'first'"),
        ({"mig_layout": {"all": ["9"]}}, "has the profile 9"),
        ({"mig_layout": {"0": ["1c.3g.40gb"]}}, "has the profile 1c.3g.40gb"),
        ({"mig_layout": {0: ["1g.10gb+me", "3g.40gb"]}, "ecc": "enabled", "compute_mode": "default"}, ""),
    ],
)
def test_what_cannot_be_meant_is_refused(changed: dict[str, Any], words: str) -> None:
    said = problems(wanted(**changed))
    assert bool(said) == bool(words), said
    assert re.escape(words) in re.escape(" ".join(said))
