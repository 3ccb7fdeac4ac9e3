# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pure parts of the simulated GPUs: texts in the kernel's formats, gpu.conf, what a fault may be."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.gpu import library, pci, simulate
from tests.lab.gpu.profiles import PROFILES, Profile

ORIGIN = {"profile": "h100x8", "cpus": "104", "nics": "0", "node": "lab/n1"}


def written(directory: Path, faults: dict[str, str] | None = None, **origin: str) -> Path:
    simulate._write(directory, {**ORIGIN, **origin}, faults or {})
    return directory


def read(device: Path, name: str) -> str:
    return (device / name).read_text().rstrip("\n")


def devices(profile: str, nics: bool = False) -> list[pci.Device]:
    lists = simulate.cpu_lists(104, PROFILES[profile].numa_nodes)
    return pci.devices(PROFILES[profile], lists, {}, nics=nics)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
class TestProfiles:
    def test_addresses_are_the_kernels_and_differ(self, profile: Profile) -> None:
        addresses = [*profile.addresses, *profile.nvswitches, *profile.nics]
        assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", address) for address in addresses)
        assert len(set(addresses)) == len(addresses)

    def test_numbers_agree(self, profile: Profile) -> None:
        assert profile.bar_mib >= profile.memory_mib
        assert profile.power_idle_w < profile.power_min_w <= profile.power_limit_w
        assert bool(profile.nvlink_links) == bool(profile.nvlink_version) == bool(profile.nvlink_mbps)
        assert bool(profile.nvswitches) == bool(profile.nvswitch_id)
        if profile.nvlink_links and not profile.nvswitches:
            assert profile.nvlink_links % (profile.count - 1) == 0

    def test_gpus_are_spread_over_all_numa_nodes(self, profile: Profile) -> None:
        assert {profile.numa_node(position) for position in range(profile.count)} == set(range(profile.numa_nodes))


class TestPci:
    def test_files_of_a_gpu(self, tmp_path: Path) -> None:
        gpu = written(tmp_path) / "devices/pci0000:9c/0000:9c:01.0/0000:9d:00.0"
        assert read(gpu, "vendor") == "0x10de"
        assert read(gpu, "device") == "0x2330"
        assert read(gpu, "class") == "0x030200"
        assert read(gpu, "revision") == "0xa1"
        assert read(gpu, "numa_node") == "1"
        assert read(gpu, "local_cpulist") == "52-103"
        assert read(gpu, "current_link_speed") == read(gpu, "max_link_speed") == "32.0 GT/s PCIe"
        assert read(gpu, "current_link_width") == read(gpu, "max_link_width") == "16"
        assert read(gpu, "modalias") == "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
        assert read(gpu, "uevent").splitlines()[:2] == ["PCI_CLASS=30200", "PCI_ID=10DE:2330"]

    def test_the_bus_links_to_where_the_node_finds_the_devices(self, tmp_path: Path) -> None:
        link = written(tmp_path) / "bus/0000:1b:00.0"
        assert os.readlink(link) == "/etc/gpuops-lab/devices/pci0000:1a/0000:1a:01.0/0000:1b:00.0"
        assert read(tmp_path / "devices/pci0000:1a/0000:1a:01.0", "class") == "0x060400"

    def test_configuration_space_holds_what_lspci_reads(self) -> None:
        config = devices("a100x4")[0].config()
        assert struct.unpack_from("<HH", config) == (0x10DE, 0x20B2)
        assert struct.unpack_from("<HH", config, 0x2C) == (0x10DE, 0x1463)
        assert config[0x09:0x0C] == bytes((0x00, 0x02, 0x03))
        capability = config[0x34]
        assert config[capability] == 0x10
        assert config[capability + 0x0C] == 4 | 16 << 4 & 0xFF
        assert len(config) == 256

    @pytest.mark.parametrize(
        ("profile", "nics", "classes"),
        [
            ("h100x8", False, {0x030200: 8, 0x068000: 4}),
            ("h100x8", True, {0x030200: 8, 0x068000: 4, 0x020700: 8}),
            ("a100x8", False, {0x030200: 8, 0x068000: 6}),
            ("h100x4", True, {0x030200: 4}),
            ("v100x2", False, {0x030200: 2}),
        ],
    )
    def test_what_is_on_the_bus(self, profile: str, nics: bool, classes: dict[int, int]) -> None:
        found = [device.pci_class for device in devices(profile, nics)]
        assert {number: found.count(number) for number in set(found)} == classes

    def test_a_narrow_link_shows_in_both_places_and_goes_away(self, tmp_path: Path) -> None:
        gpu = written(tmp_path, {"pcie_width": "1:8"}) / "bus/0000:43:00.0"
        gpu = tmp_path / Path(os.readlink(gpu)).relative_to(simulate.SEEN_AS)
        assert (read(gpu, "current_link_width"), read(gpu, "max_link_width")) == ("8", "16")
        assert "pcie_width=1:8\n" in (tmp_path / "gpu.conf").read_text()
        written(tmp_path)
        assert read(gpu, "current_link_width") == "16"
        assert "pcie_width=" not in (tmp_path / "gpu.conf").read_text()

    def test_a_lost_gpu_reads_as_ones(self, tmp_path: Path) -> None:
        directory = written(tmp_path, {"gpu_lost": "0"}) / "devices/pci0000:1a/0000:1a:01.0"
        assert (directory / "0000:1b:00.0/config").read_bytes() == b"\xff" * 256
        assert (directory / "config").read_bytes()[:2] == b"\x86\x80"
        assert read(directory / "0000:1b:00.0", "vendor") == "0x10de"


class TestConfiguration:
    def test_one_line_for_each_gpu(self) -> None:
        lines = simulate.configuration(PROFILES["h100x8"], ORIGIN, {}).splitlines()
        gpus = [line.removeprefix("gpu=").split() for line in lines if line.startswith("gpu=")]
        assert [gpu[0] for gpu in gpus] == list(PROFILES["h100x8"].addresses)
        assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu[1]) for gpu in gpus)
        assert [gpu[3] for gpu in gpus] == ["0"] * 4 + ["1"] * 4
        assert {gpu[4] for gpu in gpus} == {"0-51", "52-103"}

    def test_identities_are_stable_and_differ_between_nodes(self) -> None:
        def identities(node: str) -> set[str]:
            text = simulate.configuration(PROFILES["a100x4"], {**ORIGIN, "node": node}, {})
            return set(re.findall(r"GPU-\S+ \d+", text))

        assert identities("lab/n1") == identities("lab/n1")
        assert len(identities("lab/n1") | identities("lab/n2") | identities("other/n1")) == 12

    def test_the_library_holds_all_of_it(self) -> None:
        header = (Path(simulate.__file__).parent / "nvml_config.h").read_text()
        limits = {name: int(number) for name, number in re.findall(r"(MAX_[A-Z]+) = (\d+)", header)}
        for profile in PROFILES.values():
            text = simulate.configuration(profile, ORIGIN, dict.fromkeys(simulate.FAULTS, "0:1"))
            lines = text.splitlines()
            assert sum(line.startswith("gpu=") for line in lines) <= limits["MAX_GPUS"]
            assert sum(line.startswith("nvswitch=") for line in lines) <= limits["MAX_SWITCHES"]
            assert profile.nvlink_links <= limits["MAX_LINKS"]
            assert len(lines) <= limits["MAX_SETTINGS"]
            assert all(len(line.split("=", 1)[0]) < 32 and len(line) < 128 for line in lines if line[0] != "#")

    def test_no_fault_has_the_name_of_a_property(self) -> None:
        text = simulate.configuration(PROFILES["h100x8"], ORIGIN, {})
        assert not {line.split("=", 1)[0] for line in text.splitlines()} & set(simulate.FAULTS)

    @pytest.mark.parametrize(
        ("cpus", "nodes", "lists"),
        [
            (104, 2, ["0-51", "52-103"]),
            (2, 2, ["0", "1"]),
            (1, 2, ["0", "0"]),
            (3, 2, ["0", "1-2"]),
            (8, 1, ["0-7"]),
        ],
    )
    def test_cpu_lists(self, cpus: int, nodes: int, lists: list[str]) -> None:
        assert simulate.cpu_lists(cpus, nodes) == lists


class TestFaults:
    @pytest.fixture
    def node(self, tmp_path: Path) -> Path:
        written(tmp_path / "n1/gpu")
        return tmp_path / "n1"

    def test_exactly_these_faults(self, node: Path) -> None:
        simulate.fault(node, {"gpu_lost": "3", "hang": "5"})
        simulate.fault(node, {"ecc_uncorrectable": "0:2,7:1"})
        text = (node / "gpu/gpu.conf").read_text()
        assert "ecc_uncorrectable=0:2,7:1\n" in text
        assert "gpu_lost" not in text and "hang" not in text

    def test_without_settings_the_node_is_as_new(self, node: Path) -> None:
        before = (node / "gpu/gpu.conf").read_text()
        simulate.fault(node, {"mismatch": "1"})
        simulate.fault(node, {})
        assert (node / "gpu/gpu.conf").read_text() == before

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"gpu_losst": "3"}, "expected one of gpu_lost,"),
            ({"gpu_lost": "8"}, "there is no GPU 8, the last is 7"),
            ({"gpu_lost": "one"}, "expected GPU positions such as 3"),
            ({"ecc_uncorrectable": "3"}, "expected GPU:NUMBER"),
            ({"nvlink_inactive": "1:2,9:1"}, "there is no GPU 9"),
            ({"driver": "new"}, "expected a version"),
            ({"retired_pages_pending": "0:1"}, "NVIDIA H100 80GB HBM3 cannot have it"),
        ],
    )
    def test_what_cannot_be_is_refused_and_changes_nothing(
        self, node: Path, settings: dict[str, str], message: str
    ) -> None:
        before = (node / "gpu/gpu.conf").read_text()
        with pytest.raises(ValueError, match=re.escape(message)):
            simulate.fault(node, settings)
        assert (node / "gpu/gpu.conf").read_text() == before

    def test_an_unknown_profile_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="expected one of h100x8, h100x4"):
            simulate.prepare("h1000", "bookworm", tmp_path / "n1", tmp_path)
        assert not (tmp_path / "n1").exists()


def test_device_files_for_systemd() -> None:
    assert simulate.tmpfiles(2) == (
        "c /dev/nvidia0 0666 root root - 195:0\n"
        "c /dev/nvidia1 0666 root root - 195:1\n"
        "c /dev/nvidiactl 0666 root root - 195:255\n"
    )


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
class TestLibrary:
    def test_compiles_cleanly_and_only_once(self, tmp_path: Path) -> None:
        built = library.build_library(tmp_path)
        assert {path.name for path in built.iterdir()} == set(library.LIBRARIES)
        stamp = built.stat().st_mtime_ns
        assert library.build_library(tmp_path) == built
        assert built.stat().st_mtime_ns == stamp
        assert list((tmp_path / "gpu").iterdir()) == [built]

    def test_without_a_driver_it_says_so(self, tmp_path: Path) -> None:
        """On this machine there is no gpu.conf: nvmlInit must answer 9, "driver not loaded", and do no harm."""
        if Path(simulate.SEEN_AS).exists() or Path("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").exists():
            pytest.skip("this machine has a driver, or is a lab node")
        path = library.build_library(tmp_path) / "libnvidia-ml.so.1"
        code = f"import ctypes; print(ctypes.CDLL({str(path)!r}).nvmlInit_v2())"
        done = subprocess.run(["python3", "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout == "9\n"


class TestReplay:
    @pytest.fixture
    def program(self, tmp_path: Path) -> Path:
        path = tmp_path / "nvidia-smi"
        path.symlink_to(Path(simulate.__file__).with_name("replay_nvidia_smi"))
        (tmp_path / "nvidia-smi.d").mkdir()
        return path

    def run(self, program: Path, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_repeats_output_errors_and_status(self, program: Path) -> None:
        recordings = program.with_suffix(".d")
        (recordings / "q_x").write_text("<nvidia_smi_log>\n")
        (recordings / "q_x.stderr").write_text("a warning\n")
        (recordings / "q_x.exit").write_text("14\n")
        (recordings / "table").write_text("No devices were found\n")
        (recordings / "query-gpu=index,name_format=csv").write_text("0, A\n")
        assert self.run(program, "-q", "-x") == (14, "<nvidia_smi_log>\n", "a warning\n")
        assert self.run(program) == (0, "No devices were found\n", "")
        assert self.run(program, "--query-gpu=index,name", "--format=csv") == (0, "0, A\n", "")

    def test_says_which_recording_is_missing(self, program: Path) -> None:
        status, output, errors = self.run(program, "topo", "-m")
        assert (status, output) == (64, "")
        assert errors.endswith("nvidia-smi.d/topo_m\n")

    def test_takes_its_time(self, program: Path) -> None:
        (program.with_suffix(".d") / "L.exit").write_text("0")
        (program.with_suffix(".d") / "L.delay").write_text("0.3")
        started = time.monotonic()
        assert self.run(program, "-L") == (0, "", "")
        assert time.monotonic() - started >= 0.3
