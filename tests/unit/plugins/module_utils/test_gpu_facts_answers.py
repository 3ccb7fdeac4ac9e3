# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says in place of a report or around it: recordings, and sentences from its manual and the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvlink
from ansible_collections.gpuops.cluster.plugins.module_utils._command import Answer
from ansible_collections.gpuops.cluster.plugins.module_utils._gpu_facts import gather
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_smi_list import parse_list
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures, nvlink_text, pci_tree, smi_text
from ansible_collections.gpuops.cluster.tests.unit.support.replay import NOWHERE, answering, codes, facts_of
from ansible_collections.gpuops.cluster.tests.unit.support.report import H100

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "nvidia-smi-text"
EXPECTED = fixtures.expected("nvidia_smi_text")


def of_kind(*kinds: str) -> list[str]:
    return sorted(name for name, wanted in EXPECTED.items() if wanted["kind"] in kinds)


def test_every_recording_has_an_expectation() -> None:
    assert sorted(EXPECTED) == fixtures.names(TEXT)


@pytest.mark.parametrize("name", of_kind("sentence"))
def test_a_sentence_in_place_of_a_report(name: str) -> None:
    facts, wanted = facts_of(fixtures.data(TEXT, name), rc=255), EXPECTED[name]
    assert facts["state"] == wanted["state"]
    assert codes(facts) == [tuple(problem) for problem in wanted["problems"]]
    assert facts["count"] == 0 and facts["reason"]


@pytest.mark.parametrize("name", of_kind("report"))
def test_the_xml_twin_of_a_text_report(name: str) -> None:
    facts, wanted = facts_of(smi_text.xml_of(fixtures.text(TEXT, name))), EXPECTED[name]
    times = wanted.get("times", 1)
    devices = facts["devices"]
    assert [device["name"] for device in devices] == wanted["names"] * times
    assert (facts["driver"]["version"], facts["driver"]["cuda"]) == (wanted["driver"], wanted["cuda"])
    assert [device["memory_mib"] for device in devices] == wanted["memory"] * times
    assert [device["mig"]["enabled"] for device in devices] == wanted["mig"] * times
    assert [device["ecc"]["enabled"] for device in devices] == wanted["ecc"] * times
    assert sum(len(device["mig"]["devices"]) for device in devices) == wanted.get("mig_devices", 0)
    assert codes(facts) == [tuple(problem) for problem in wanted["problems"]]
    assert all(device["uuid"].startswith("GPU-") and device["pci"] for device in devices)


@pytest.mark.parametrize("name", of_kind("table", "version", "list"))
def test_what_is_no_report_is_never_ok(name: str) -> None:
    facts = facts_of(fixtures.data(TEXT, name))
    problems = [tuple(problem) for problem in EXPECTED[name].get("problems", [])]
    assert codes(facts) == problems
    assert facts["state"] == ("degraded" if problems else "no_answer")
    assert facts["count"] == 0 and facts["topology"] is None


def test_mig_devices_get_their_names_from_the_list() -> None:
    report = smi_text.xml_of(fixtures.text(TEXT, "h100-mig-driver590.48-q.txt"))
    listing = fixtures.data(TEXT, "h100-mig-driver590.48-L.txt")
    wanted = EXPECTED["h100-mig-driver590.48-L.txt"]
    assert len(parse_list(listing.decode())) == wanted["gpus"]
    devices = facts_of(report, listing=listing)["devices"][0]["mig"]["devices"]
    assert [device["profile"] for device in devices] == wanted["profiles"]
    assert devices[1] == {
        "uuid": "MIG-d0579eb6-480e-4558-8a56-a479a384e2db",
        "gpu_instance": 3,
        "compute_instance": 0,
        "profile": "2g.20gb",
        "memory_mib": 20096,
    }


def test_the_inforom_warning_behind_a_report_names_its_gpu() -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:05:00.0\n"
    facts = facts_of(H100.encode() + warning.encode(), rc=14)
    assert codes(facts) == [("inforom_corrupt", 1)] and facts["count"] == 8
    assert codes(facts_of(warning.encode() + H100.encode(), rc=14)) == [("inforom_corrupt", 1)]
    assert codes(facts_of(H100.encode(), stderr=warning.encode(), rc=14)) == [("inforom_corrupt", 1)]
    assert codes(facts_of(H100.encode(), rc=14)) == [("inforom_corrupt", None)]
    corrupted = H100.replace("<img_version>G520.0200.00.05", "<img_version>Corrupted infoROM", 1).encode()
    assert codes(facts_of(corrupted, rc=14)) == [("inforom_corrupt", 0)]
    assert codes(facts_of(corrupted + warning.replace(":05:", ":04:").encode(), rc=14)) == [("inforom_corrupt", 0)]


def test_a_gpu_that_the_report_lacks_is_told_beside_one_that_it_has() -> None:
    said = "Unable to determine the device handle for GPU 0000:99:00.0: GPU is lost\n"
    report = H100.replace("<minor_number>0", "<minor_number>GPU is lost", 1)
    assert codes(facts_of((report + said).encode(), rc=15)) == [("gpu_lost", None), ("gpu_lost", 0)]


LOST = "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU"


@pytest.mark.parametrize(
    ("said", "rc", "gpus", "state", "found"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n", 18, 8,
         "driver_mismatch", []),
        ("Failed to initialize NVML: RM has detected an NVML/RM version mismatch.", 18, 0, "driver_mismatch", []),
        ("Mismatch in versions between nvidia-smi and NVML.", 255, 0, "driver_mismatch", []),
        ("", 18, 0, "driver_mismatch", []),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display"
         " Driver is properly installed and present in your system.", 12, 8, "driver_not_loaded", []),
        ("Failed to initialize NVML: Driver Not Loaded", 9, 0, "driver_not_loaded", []),
        ("Failed to initialize NVML: Unknown Error", 255, 8, "driver_not_loaded", []),
        ("", 9, 8, "driver_not_loaded", []),
        ("Failed to initialize NVML: Insufficient Permissions", 4, 0, "degraded", ["not_permitted"]),
        ("No devices were found", 6, 0, "no_gpu", []),
        ("No devices were found", 6, 8, "degraded", ["gpu_missing"]),
        ("No devices found.", 6, 8, "degraded", ["gpu_missing"]),
        (LOST, 15, 0, "degraded", ["gpu_lost"]),
        (LOST, 15, 8, "degraded", ["gpu_lost", "gpu_missing"]),
        ("", 15, 0, "degraded", ["gpu_lost"]),
        ("GPU 0000:41:00.0 has fallen off the bus.", 255, 0, "degraded", ["gpu_lost"]),
        ("", 0, 0, "no_answer", []),
        ("", 139, 8, "no_answer", []),
        ("sh: nvidia-smi: Text file busy", 126, 8, "no_answer", []),
    ],
)  # fmt: skip
def test_sentences_and_exit_codes(said: str, rc: int, gpus: int, state: str, found: list[str], tmp_path: Path) -> None:
    for number in range(gpus):
        pci_tree.add(tmp_path, f"0000:4{number}:00.0")
    facts = facts_of(said.encode(), rc=rc, sysfs_root=str(tmp_path))
    assert facts["state"] == state
    assert [code for code, _device in codes(facts)] == found
    assert facts["pci_count"] == gpus and facts["reason"]


@pytest.mark.parametrize(
    ("elements", "version", "cuda"),
    [
        ("<driver_version>610.57.04 [Deprecated; use KMD Version]</driver_version><cuda_version>13.3 [Deprecated]"
         "</cuda_version><kmd_version>610.57.04</kmd_version>", "610.57.04", "13.3"),
        ('<driver_version>Deprecated, see "KMD version" instead</driver_version><kmd_version>610.57.04</kmd_version>'
         "<cuda_umd_version>13.3</cuda_umd_version>", "610.57.04", "13.3"),
        ("<driver_version>N/A</driver_version><cuda_version>Not Found</cuda_version>", None, None),
    ],
)  # fmt: skip
def test_versions_as_driver_610_writes_them(elements: str, version: str | None, cuda: str | None) -> None:
    driver = facts_of(f"<nvidia_smi_log>{elements}</nvidia_smi_log>".encode())["driver"]
    assert (driver["version"], driver["cuda"]) == (version, cuda)


def test_the_library_tells_its_version_in_a_mismatch() -> None:
    said = b"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n"
    assert facts_of(said, rc=18)["driver"]["version"] == "535.161"


def test_without_nvidia_smi(tmp_path: Path) -> None:
    assert gather(None, NOWHERE, NOWHERE)["state"] == "no_gpu"
    pci_tree.add(tmp_path, "0000:17:00.0", numa_node="1", device="2204", code="0300")
    facts = gather(None, str(tmp_path), NOWHERE)
    assert facts["state"] == "no_driver" and facts["problems"] == []
    assert facts["pci_devices"] == [
        {"address": "0000:17:00.0", "device_id": "0x2204", "class": "0x030000", "numa_node": 1}
    ]


def slow(*late: str) -> Any:
    """An nvidia-smi that answers all but these calls."""
    ask = answering(H100.encode(), topo=fixtures.data("nvidia-smi-topo", "h100-sxm5-8x-8nic-driver570-spaces.txt"))

    def answer(*arguments: str) -> Answer:
        if arguments[0] in late:
            return Answer(
                timed_out=True, failure=f"{arguments[0]} gave no answer within 60 s", stdout=H100[:70000].encode()
            )
        done: Answer = ask(*arguments)
        return done

    return answer


def test_a_call_without_an_answer() -> None:
    facts = gather(slow("-q"), NOWHERE, NOWHERE)
    assert facts["state"] == "no_answer" and "60 s" in facts["reason"]
    assert facts["count"] == 3 and facts["topology"] is None  # what it said before it hung
    facts = gather(slow("topo"), NOWHERE, NOWHERE)
    assert facts["state"] == "no_answer" and facts["count"] == 8 and facts["topology"] is None


@pytest.mark.parametrize(
    ("banner", "loaded", "flavour"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build", "550.54.15", "open"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Thu Mar 7", "535.309.01", "proprietary"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.43  Sun Feb 10", "418.43", "proprietary"),
        ("", None, None),
    ],
)  # fmt: skip
def test_the_loaded_module(banner: str, loaded: str | None, flavour: str | None, tmp_path: Path) -> None:
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    (tmp_path / "driver/nvidia/version").write_text(f"{banner}\nGCC version: gcc version 12.2.0 (Debian 12.2.0-14)\n")
    driver = facts_of(H100.encode(), proc_root=str(tmp_path))["driver"]
    assert (driver["loaded"], driver["flavour"]) == (loaded, flavour)


def test_a_module_that_nvidia_smi_loads_counts_as_loaded(tmp_path: Path) -> None:
    """After a boot the first call of nvidia-smi loads the module."""
    ask = answering(H100.encode())

    def first_call(*arguments: str) -> Answer:
        (tmp_path / "driver/nvidia").mkdir(parents=True, exist_ok=True)
        banner = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
        (tmp_path / "driver/nvidia/version").write_text(f"{banner}\n", encoding="utf-8")
        answer: Answer = ask(*arguments)
        return answer

    assert gather(first_call, NOWHERE, str(tmp_path))["driver"]["loaded"] == "550.54.15"


# What other tools recorded

LSPCI = {
    "a100-sxm4-8x-azure-nn.txt": {
        "gpus": 8,
        "first": "0001:00:00.0",
        "last": "000e:00:00.0",
        "switches": 6,
        "lines": 31,
    },
    "gb200-4x-d-no-nn.txt": {"gpus": 4, "first": "0008:01:00.0", "last": "0019:01:00.0", "switches": 0, "lines": 87},
}


@pytest.mark.parametrize("name", fixtures.names("lspci"))
def test_gpus_on_the_bus(name: str, tmp_path: Path) -> None:
    wanted = LSPCI[name]
    assert pci_tree.add_listing(tmp_path, fixtures.text("lspci", name)) == wanted["lines"]
    facts = gather(None, str(tmp_path), NOWHERE)
    addresses = [function["address"] for function in facts["pci_devices"]]
    assert facts["pci_count"] == wanted["gpus"] == len(addresses)
    assert (addresses[0], addresses[-1]) == (wanted["first"], wanted["last"])
    assert facts["nvswitch_count"] == wanted["switches"]


# links listed as active by GPU, and the GPUs to name; only for the matrix that such links would make
NVLINK: dict[str, tuple[dict[int, int], list[int]]] = {
    "a100-pcie-2x-all-inactive.txt": ({0: 0, 1: 0}, []),
    "a100-sxm4-8x-driver535-healthy.txt": (dict.fromkeys(range(8), 12), []),
    "a100-sxm4-gpu7-good.txt": ({7: 12}, []),
    "h100-1x-driver590.48.txt": ({0: 18}, []),
    "h100-mig-driver590.48-not-supported.txt": ({0: 0}, []),
    "l40s-driver595.80-not-supported.txt": ({0: 0}, []),
    "rtx4080super-driver595.71-not-supported.txt": ({0: 0}, []),
    "v100-sxm2-inactive-links-cut.txt": ({0: 6, 1: 6, 2: 6, 3: 4, 4: 5, 5: 4, 6: 5}, [3, 4, 5, 6]),
}


@pytest.mark.parametrize("name", fixtures.names("nvidia-smi-nvlink"))
def test_links_as_recorded(name: str) -> None:
    links, named = NVLINK[name]
    status = nvlink_text.status_of(fixtures.text("nvidia-smi-nvlink", name))
    assert {gpu: sum(active) for gpu, (_name, active) in status.items()} == links
    boards = [_nvlink.Board(board, None, False) for board, _links in status.values()]
    assert sorted(_nvlink.inactive(nvlink_text.matrix_of(status), boards)) == named
