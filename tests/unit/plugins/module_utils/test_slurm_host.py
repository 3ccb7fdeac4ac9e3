"""What the kernel says of file systems."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_host as host


def test_a_directory_lies_on_the_innermost_mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = f"/dev/sda1 / ext4 rw 0 0\nnas:/state {tmp_path} nfs4 rw,noexec 0 0\nnas:/x {tmp_path}-other xfs rw 0 0\n"
    monkeypatch.setattr(host, "read", lambda _path: mounts)
    assert host.directory(f"{tmp_path}/slurmctld") == {
        "filesystem": "nfs4",
        "options": "rw,noexec",
        "owner": "",
    }
    assert host.directory(str(tmp_path))["filesystem"] == "nfs4"
    assert host.directory("/")["filesystem"] == "ext4"
    assert host.directory("/")["owner"] == "root"
