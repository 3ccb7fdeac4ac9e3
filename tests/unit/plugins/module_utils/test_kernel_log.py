"""Xids from the journal, from the kernel's buffer, and the ones that were acknowledged."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _kernel_log

JOURNAL = """\
1764471600.500000 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=python, GPU has fallen off the bus.
1764471700.500000 n1 kernel: NVRM: Xid (PCI:0000:1B:00): 79, GPU has fallen off the bus.
1764471800.500000 n1 kernel: NVRM: Xid (PCI:0002:00:00): 63, Row Remapper: row marked
"""


def journal(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    tool = folder / "journalctl"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_the_journal_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said").write_text(JOURNAL)
    journal(tmp_path, monkeypatch, f"cat {tmp_path}/said")
    first, second = _kernel_log.xids(kmsg="/nonexistent")
    assert (first.pci, first.number, first.count) == ("0000:1b:00", 79, 2)
    assert first.last == 1764471700.5
    assert (second.pci, second.number) == ("0002:00:00", 63)


def test_what_was_acknowledged_counts_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said").write_text(JOURNAL)
    journal(tmp_path, monkeypatch, f"cat {tmp_path}/said")
    (entry,) = _kernel_log.xids(since=1764471750.0, kmsg="/nonexistent")
    assert entry.number == 63
    assert _kernel_log.xids(since=1764471900.0, kmsg="/nonexistent") == []


@pytest.mark.parametrize("body", ["exit 1", "echo 'no journal' >&2; exit 3"])
def test_the_kernel_s_buffer_where_the_journal_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    journal(tmp_path, monkeypatch, body)
    (tmp_path / "kmsg").write_text("3,5,1000000,-;NVRM: Xid (PCI:0000:1b:00): 48, x\n SUBSYSTEM=pci\n")
    (entry,) = _kernel_log.xids(kmsg=str(tmp_path / "kmsg"))
    assert entry.number == 48
    assert 0 < entry.last <= time.time()


def test_no_log_at_all_is_an_error_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(tmp_path, monkeypatch, "exit 3")
    with pytest.raises(OSError, match="nonexistent"):
        _kernel_log.xids(kmsg="/nonexistent/kmsg")
