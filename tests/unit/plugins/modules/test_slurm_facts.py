"""What slurm_facts sees of services, clocks and file systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.modules import slurm_facts

SHOW = """\
Id=munge.service
ActiveState=active
UnitFileState=enabled

Id=mariadb.service
ActiveState=active
UnitFileState=disabled

Id=slurmdbd.service
ActiveState=inactive
UnitFileState=

Id=slurmctld.service
ActiveState=failed
UnitFileState=enabled

Id=slurmd.service
ActiveState=active
UnitFileState=enabled
"""


class Module:
    def __init__(self, systemctl: str = "/bin/systemctl") -> None:
        self.systemctl = systemctl

    def get_bin_path(self, _name: str) -> str:
        return self.systemctl

    def run_command(self, _words: list[str]) -> tuple[int, str, str]:
        return 0, SHOW, ""


def test_only_what_is_active_and_comes_back_at_boot_counts_as_running() -> None:
    module: Any = Module()
    assert slurm_facts.running(module) == ["munge", "slurmd"]


def test_without_systemd_nothing_does() -> None:
    module: Any = Module("")
    assert slurm_facts.running(module) == []


def test_a_directory_lies_on_the_innermost_mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = f"/dev/sda1 / ext4 rw 0 0\nnas:/state {tmp_path} nfs4 rw 0 0\nnas:/x {tmp_path}-other xfs rw 0 0\n"
    monkeypatch.setattr(slurm_facts, "read", lambda _path: mounts)
    assert slurm_facts.directory(f"{tmp_path}/slurmctld") == {"filesystem": "nfs4", "owner": ""}
    assert slurm_facts.directory(str(tmp_path))["filesystem"] == "nfs4"
    assert slurm_facts.directory("/")["filesystem"] == "ext4"
    assert slurm_facts.directory("/")["owner"] == "root"
