"""What slurm_facts sees of services."""

from __future__ import annotations

from typing import Any

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
