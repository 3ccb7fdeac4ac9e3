# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that reads counters on a node, run for real with tools that answer like NVIDIA's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_counters as counting

# Drivers before 535 know clocks_throttle_reasons only, and refuse a query with a field that they do not know.
SMI = r"""#!/bin/sh
case "$*" in
  *clocks_event_reasons*)
    [ "$NEW" = 1 ] || { echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2; } ;;
esac
case "$*" in
  *clocks_*) printf '0, 0x0000000000000004, 61\n1, 0x0000000000000040, 92\n' ;;
  *ecc*) printf '0, 0, 12\n1, [N/A], [N/A]\n' ;;
  "nvlink -e")
    printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: Replay Errors: 0\n'
    printf '\t Link 0: CRC Errors: 7\n\t Link 1: CRC Errors: 2\n' ;;
esac
"""
DMESG = r"""#!/bin/sh
echo '[ 12.1] NVRM: Xid (PCI:0000:1b:00): 79, pid=4711, name=python, GPU has fallen off the bus.'
echo '[ 12.2] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.'
echo '[ 99.0] NVRM: Xid (PCI:0000:5c:00): 63, row remapper'
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    for name, text in (("nvidia-smi", SMI), ("dmesg", DMESG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(tools: Path, wait: str = "0", new: str = "1") -> counting.Values:
    path = f"{tools}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SLURMD_NODENAME": "n7", "NEW": new}
    done = subprocess.run(
        ["sh", "-c", counting.SCRIPT, "counters", wait],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert set(counting.read(done.stdout)) <= {"n7"}, done.stdout
    return counting.read(done.stdout).get("n7", {})


@pytest.mark.parametrize("new", ["0", "1"])
def test_one_look(tools: Path, new: str) -> None:
    found = run(tools, new=new)
    assert found["gpu0"] == {"ecc_uncorrected": 0, "ecc_corrected": 12, "nvlink_errors": 9, "clocks": 4, "celsius": 61}
    assert found["gpu1"] == {"clocks": 0x40, "celsius": 92}, "what is not reported is left out"
    assert found["0000:1b:00"] == {"xid_79": 2}
    assert found["0000:5c:00"] == {"xid_63": 1}


def test_look_while_it_runs_ends_with_it(tools: Path) -> None:
    (tools / "ps").write_text(
        f"#!/bin/sh\ncd {tools}\n[ -e second ] && exit 0\n[ -e first ] && touch second || touch first\n"
        "echo /opt/nccl-tests/bin/all_reduce_perf -b 1G\n",
        encoding="utf-8",
    )
    (tools / "ps").chmod(0o755)
    found = run(tools, wait="600")
    assert found == {"gpu0": {"clocks": 4, "celsius": 61}, "gpu1": {"clocks": 0x40, "celsius": 92}}


def test_node_without_any_tool_says_nothing_wrong(tools: Path) -> None:
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    (tools / "dmesg").write_text("#!/bin/sh\n", encoding="utf-8")
    found = run(tools)
    assert not [device for device in found if device.startswith("gpu") or ":" in device]


def test_torn_lines_are_left_out() -> None:
    assert counting.read("0: CNT\tn1\tgpu0\tcelsius\t40\nCNT\tn1\tgpu0\nCNT\tn1\tgpu0\tx\ty\n") == {
        "n1": {"gpu0": {"celsius": 40}}
    }
