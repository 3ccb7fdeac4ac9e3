"""What a real kernel makes of cards that look like an H100: detection, nouveau, plan, reboot, and the module."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Module = Callable[..., dict[str, Any]]
VERSION = "535.309.01"


def answers(n1: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(n1.file("/root/plan.json").content_string)
    return found


def test_the_cards_are_found_on_the_bus(module: Module) -> None:
    gpu = module("n1", "gpuops.cluster.gpu_facts")["ansible_facts"]["gpu"]
    assert gpu["pci_count"] == 2
    assert gpu["state"] not in ("ok", "degraded", "no_gpu"), "there are cards, and no driver that runs them"
    assert gpu["driver"]["loaded"] is None


def test_the_role_saw_nouveau_and_said_that_it_takes_a_reboot(n1: Any) -> None:
    assert "nouveau" in n1.file("/root/lsmod").content_string, "udev had loaded it for the cards' ids"
    assert answers(n1)["plan"]["nouveau"] is True


def test_the_plan_has_the_headers_of_the_running_kernel_and_no_fabric_manager_without_nvswitch(n1: Any) -> None:
    plan = answers(n1)["plan"]
    release = n1.check_output("uname -r")
    assert f"linux-headers-{release}" in plan["headers"]
    assert "nvidia-kernel-dkms" in plan["packages"]
    assert not any("fabric" in name for name in plan["packages"])


def test_nouveau_is_gone_after_a_real_reboot(n1: Any) -> None:
    assert n1.check_output("cat /proc/sys/kernel/random/boot_id") != n1.check_output("cat /root/boot_id")
    assert "nouveau" not in n1.check_output("lsmod")
    # Not for want of cards: the bus shows them, and no driver has them.
    assert n1.check_output("lspci -n -d 10de:2330").count("0302: 10de:2330 (rev a1)") == 2
    assert "Kernel driver in use" not in n1.check_output("lspci -k -d 10de:")


def test_the_initramfs_has_the_blacklist(n1: Any) -> None:
    listed = n1.check_output("lsinitramfs /boot/initrd.img-$(uname -r)")
    assert "etc/modprobe.d/gpuops-nouveau.conf" in listed


def test_nouveau_stays_away_from_modprobe_by_alias(n1: Any) -> None:
    card = n1.check_output("grep -l PCI_ID=10DE:2330 /sys/bus/pci/devices/*/uevent").split()[0]
    alias = n1.check_output("grep MODALIAS %s", card).partition("=")[2]
    shown = n1.run("modprobe --dry-run --use-blacklist --verbose %s", alias).stdout
    assert "nouveau" not in shown, shown


def test_dkms_has_the_modules_for_the_running_kernel(n1: Any) -> None:
    release = n1.check_output("uname -r")
    assert f"nvidia-current/{VERSION}, {release}, x86_64: installed" in n1.check_output("dkms status")
    assert n1.check_output("modinfo --field version nvidia-current") == VERSION


def test_the_module_refuses_the_cards_in_its_own_words_and_the_role_repeats_them(n1: Any) -> None:
    assert n1.run("modprobe nvidia").rc != 0
    assert "NVRM: " in n1.check_output("dmesg | grep 10de:2330")
    assert "NVRM: " in n1.file("/root/said").content_string


def test_what_was_installed_is_whole_and_held(n1: Any) -> None:
    assert n1.check_output("dpkg --audit") == ""
    assert {"nvidia-kernel-dkms", "libcuda1", "nvidia-smi"} <= set(n1.check_output("apt-mark showhold").split())
    assert f"Candidate: {VERSION}-" in n1.check_output("apt-cache policy nvidia-kernel-dkms")
