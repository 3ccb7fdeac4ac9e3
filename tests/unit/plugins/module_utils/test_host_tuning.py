"""What host_tuning makes of the files of a kernel."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _host_tuning as look
from ansible_collections.gpuops.cluster.plugins.module_utils import _kernel_values as values


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("vm.swappiness", "vm/swappiness"),
        ("net.ipv4.conf.eth0/100.mtu", "net/ipv4/conf/eth0.100/mtu"),
        ("net/ipv4/conf/eth0.100/mtu", "net/ipv4/conf/eth0.100/mtu"),
    ],
)
def test_a_parameter_names_a_file(key: str, path: str) -> None:
    assert values.sysctl_path(key) == f"/proc/sys/{path}"


@pytest.mark.parametrize(
    ("text", "value"),
    [("always [madvise] never\n", "madvise"), ("4096\t131072\t6291456\n", "4096 131072 6291456"), ("", "")],
)
def test_the_value_in_a_file(tmp_path: Path, text: str, value: str) -> None:
    (tmp_path / "file").write_text(text)
    assert values.current(str(tmp_path / "file")) == value


def test_settle_changes_only_what_differs(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("cpu0", "cpu1")]
    for path, text in zip(paths, ("performance\n", "powersave\n")):
        Path(path).write_text(text)
    line: tuple[list[str], list[str]] = (["CPU governor: powersave -> performance"], [])
    assert values.settle("CPU governor", paths, "performance", True) == line
    assert Path(paths[1]).read_text() == "powersave\n"
    assert values.settle("CPU governor", paths, "performance", False) == line
    assert values.settle("CPU governor", paths, "performance", False) == ([], [])


def test_settle_says_what_the_kernel_says(tmp_path: Path) -> None:
    assert values.settle("x", [], "1", False) == ([], ["x: this kernel has none"])
    assert values.settle("x", [str(tmp_path)], "1", False) == ([], ["x = 1 (is ): Is a directory"])


@pytest.fixture
def sysctl_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    etc.mkdir()
    lib.mkdir()
    monkeypatch.setattr(values, "SYSCTL_DIRS", (str(etc), str(lib)))
    return etc, lib


REQUEST = {
    "sysctl": {"vm.swappiness": 10, "net.ipv4.tcp_rmem": "4096 1 2"},
    "sysctl_file": "/etc/sysctl.d/90-ours.conf",
}


def test_a_later_file_with_another_value_is_named(sysctl_dirs: tuple[Path, Path]) -> None:
    etc, lib = sysctl_dirs
    (etc / "90-ours.conf").write_text("vm.swappiness = 10\n")
    (etc / "10-early.conf").write_text("vm.swappiness = 60\n")
    (etc / "95-same.conf").write_text("vm.swappiness=10\nnet.ipv4.tcp_rmem=4096\t1\t2\n")
    (lib / "99-late.conf").write_text("# vm.swappiness = 1\n;vm.swappiness = 1\n-vm/swappiness = 30\nnonsense\n")
    assert values.overrides(REQUEST) == [f"vm.swappiness = 10: {lib}/99-late.conf makes it 30 at boot"]


def test_a_masked_file_does_not_count(sysctl_dirs: tuple[Path, Path]) -> None:
    etc, lib = sysctl_dirs
    (lib / "99-late.conf").write_text("vm.swappiness = 30\n")
    (etc / "99-late.conf").symlink_to("/dev/null")
    assert values.overrides(REQUEST) == []


def config_space(*capabilities: tuple[int, int]) -> bytes:
    """A PCI express configuration space with a list of (id, control word) extended capabilities."""
    space = bytearray(4096)
    for number, (identity, control) in enumerate(capabilities):
        at = 0x100 + 0x40 * number
        following = at + 0x40 if number + 1 < len(capabilities) else 0
        struct.pack_into("<IHH", space, at, following << 20 | 1 << 16 | identity, 0x7F, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        (config_space((0x0001, 0xFFFF), (0x000D, 0b0011101)), ["ReqRedir", "CmpltRedir", "UpstreamFwd"]),
        (config_space((0x000D, 0b1)), []),  # SrcValid alone
        (config_space((0x000D, 0)), []),
        (config_space((0x0001, 0xFFFF)), []),
        (config_space((0x000D, 0b100))[:256], []),  # what a user who is not root can read
        (b"", []),
    ],
)
def test_acs_counts_by_redirect_and_forward_bits(config: bytes, bits: list[str]) -> None:
    assert look.acs_bits(config) == bits


def test_a_capability_list_in_a_circle_ends() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x100 << 20 | 0x10001)
    assert look.acs_bits(bytes(space)) == []


def test_bridges_above_a_device(tmp_path: Path) -> None:
    gpu = tmp_path / "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0"
    gpu.mkdir(parents=True)
    (tmp_path / "gpu").symlink_to(gpu)
    assert look.bridges_above([str(tmp_path / "gpu")]) == ["0000:00:01.0", "0000:01:00.0"]


def test_converge_leaves_governor_to_a_running_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "governor").write_text("powersave\n")
    item = {"name": "CPU governor", "files": str(tmp_path / "gov*"), "value": "performance"}
    request: dict[str, Any] = {"sysctl": {}, "sysctl_file": "/etc/sysctl.d/90-ours.conf", "sysfs": [item]}
    monkeypatch.setattr(values, "tuned_profile", lambda: "balanced")
    answer = values.converge(request, check=False)
    assert answer["changes"] == []
    assert answer["left_out"] == ["CPU governor: tuned owns it (profile balanced)"]
    monkeypatch.setattr(values, "tuned_profile", lambda: "")
    assert values.converge(request, check=True)["changes"] == ["CPU governor: powersave -> performance"]
    assert (tmp_path / "governor").read_text() == "powersave\n"
    assert values.converge(request, check=False)["changes"] == ["CPU governor: powersave -> performance"]
    assert values.converge(request, check=False)["changes"] == []


def test_a_limit_that_services_do_not_get_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"memlock": "unlimited", "nofile": 1048576, "nofile_soft": 65536}
    monkeypatch.setattr(look, "manager_limits", lambda: ["infinity", "65536", "1048576"])
    monkeypatch.setattr(look, "service_limits", lambda: ["8192", "65536", "1048576"])
    answer = look.limits(request)
    assert answer["manager"]
    assert answer["differing"] == [{"limit": "memlock", "text": "memlock of services is 8192, not unlimited"}]
    monkeypatch.setattr(look, "service_limits", list)
    assert look.limits(request) == {"manager": True, "asked": False, "differing": []}


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         8388608              {}            bytes
"""


@pytest.mark.parametrize(
    ("hard", "line"),
    [
        ("unlimited", ""),
        ("8388608", "memlock of Slurm jobs is 8192, not unlimited, because slurmd was started with it; restart slurmd"),
    ],
)
def test_what_jobs_of_slurm_may_lock(monkeypatch: pytest.MonkeyPatch, hard: str, line: str) -> None:
    monkeypatch.setattr(look, "run", lambda *_argv: "77")
    monkeypatch.setattr(look, "read", lambda path: LIMITS.format(hard) if path == "/proc/77/limits" else "")
    assert look.job_limits({"memlock": "unlimited"}) == line
    monkeypatch.setattr(look, "run", lambda *_argv: "0")
    assert look.job_limits({"memlock": "unlimited"}) == ""
