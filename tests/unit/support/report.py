# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports made by changing a recording, for faults of which there is none."""

from __future__ import annotations

import re

from ansible_collections.gpuops.cluster.tests.unit.support import fixtures

H100 = fixtures.data("nvidia-smi-xml", "h100-sxm5-8x-driver570.86.xml").decode()
A100_PCIE = fixtures.data("nvidia-smi-xml", "v100-pcie-1x-driver460.39-4-processes.xml").decode()


def split(report: str) -> tuple[str, list[str], str]:
    """What stands before, the GPUs, and what stands behind them."""
    gpus = re.findall(r"<gpu .*?</gpu>", report, re.DOTALL)
    return report[: report.index(gpus[0])], gpus, report[report.rindex("</gpu>") + 6 :]


def change(report: str, gpu: int, **values: str) -> bytes:
    """Set elements of one GPU by their tags. A tag that is there several times is changed everywhere."""
    head, gpus, tail = split(report)
    for tag, value in values.items():
        gpus[gpu], count = re.subn(rf"<{tag}>[^<]*</{tag}>", f"<{tag}>{value}</{tag}>", gpus[gpu])
        assert count, tag
    return (head + "\n".join(gpus) + tail).encode()


def only(report: str, *numbers: int) -> str:
    """The report without the other GPUs, but for what it announces."""
    head, gpus, tail = split(report)
    return head + "\n".join(gpus[number] for number in numbers) + tail


def without(report: str, tag: str) -> bytes:
    """The report without the elements of this tag."""
    return re.sub(rf"<{tag}[ >].*?</{tag}>", "", report, flags=re.DOTALL).encode()
