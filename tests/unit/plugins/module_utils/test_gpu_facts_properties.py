# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever happens to a report, gpu_facts answers quickly and never calls a host ok that lacks a GPU."""

from __future__ import annotations

import os
import re
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_smi_topology import parse_topology
from ansible_collections.gpuops.cluster.plugins.module_utils._pci import normalise
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures, pci_tree
from ansible_collections.gpuops.cluster.tests.unit.support.replay import facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

XML, TEXT, TOPO = "nvidia-smi-xml", "nvidia-smi-text", "nvidia-smi-topo"
REPORTS = fixtures.names(XML)
STATES = {"ok", "degraded", "no_gpu", "no_driver", "driver_not_loaded", "driver_mismatch", "no_answer"}
TREES = tempfile.TemporaryDirectory()  # one PCI tree a recording, kept for the whole run


@cache
def report(name: str) -> bytes:
    return fixtures.data(XML, name)


@cache
def elements(name: str) -> list[tuple[int, int]]:
    """Where the elements of a report are, at all depths. None holds another one of its own name."""
    text = report(name)
    body = text.index(b"<nvidia_smi_log>") + 1
    starts = [match for match in re.finditer(rb"<(\w+)(?: [^<>]*)?>", text) if match.start() > body]
    ends = [text.find(b"</%s>" % match.group(1), match.end()) for match in starts]
    return [(match.start(), end + len(match.group(1)) + 3) for match, end in zip(starts, ends) if end > 0]


@cache
def tree(name: str) -> tuple[str, int]:
    """A sysfs that shows the GPUs of a recording, and their number."""
    root = Path(TREES.name) / str(os.getpid()) / name  # ansible-test runs each test in a process of its own
    ids = re.findall(rb'<gpu id="([^"]+)"', report(name))
    for address in {normalise(text.decode()) for text in ids}:
        assert address is not None
        pci_tree.add(root, address)
    return str(root), len(ids)


def check(data: bytes, name: str, **answers: Any) -> dict[str, Any]:
    root, count = tree(name)
    started = time.process_time()
    facts = facts_of(data, sysfs_root=root, **answers)
    assert time.process_time() - started < 1
    assert facts["state"] in STATES
    assert facts["state"] != "ok" or (facts["count"] >= count and not facts["problems"])
    assert facts["count"] == len(facts["devices"]) and facts["pci_count"] == count
    assert (facts["state"] == "ok") is not bool(facts["reason"])
    return facts


reports = st.sampled_from(REPORTS)


@given(reports, st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_any_prefix(name: str, share: float) -> None:
    data = report(name)
    facts = check(data[: int(len(data) * share)], name)
    if share < 0.99 and name != "gtx1070ti-excerpt-no-driver.xml":
        assert facts["state"] != "ok"


@given(reports, st.floats(0, 1, exclude_max=True), st.integers(0, 255))
@settings(deadline=None, max_examples=200)
def test_any_mutated_byte(name: str, share: float, byte: int) -> None:
    data = bytearray(report(name))
    data[int(len(data) * share)] = byte
    check(bytes(data), name)


@given(reports, st.floats(0, 1, exclude_max=True))
@settings(deadline=None, max_examples=100)
def test_any_removed_element(name: str, share: float) -> None:
    data, spans = report(name), elements(name)
    start, end = spans[int(len(spans) * share)]
    check(data[:start] + data[end:], name)


@given(reports, st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 255))
@settings(deadline=None, max_examples=100)
def test_any_text_around(name: str, before: bytes, behind: bytes, rc: int) -> None:
    check(before + report(name) + behind, name, rc=rc, stderr=behind)


@given(st.binary(max_size=400), st.integers(-9, 255))
def test_any_answer_at_all(said: bytes, rc: int) -> None:
    facts = facts_of(said, rc=rc)
    assert facts["state"] in STATES - {"ok"}


@given(st.sampled_from(fixtures.names(TOPO)), st.floats(0, 1, exclude_max=True), st.integers(0, 255), st.booleans())
@settings(deadline=None, max_examples=100)
def test_any_damaged_matrix(name: str, share: float, byte: int, cut: bool) -> None:
    data = bytearray(fixtures.data(TOPO, name))
    place = int(len(data) * share)
    if cut:
        del data[place:]
    else:
        data[place] = byte
    started = time.process_time()
    facts = facts_of(report("h100-sxm5-8x-driver570.86.xml"), topo=bytes(data))
    assert time.process_time() - started < 1
    matrix = parse_topology(data.decode("utf-8", "replace"))
    assert (facts["topology"] is None) is (matrix is None)
    if matrix is not None:
        assert {len(row) for row in matrix.gpus} == {len(matrix.gpus)}
        assert all(len(row) == len(matrix.gpus) for _name, row in matrix.nics)


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "\u00b2", "\u0663"])
def test_numbers_that_are_none(number: str) -> None:
    name = "h100-sxm5-8x-driver570.86.xml"
    check(re.sub(rb">[0-9]+<", f">{number}<".encode(), report(name)), name)
    topo = fixtures.text(TOPO, "h100-sxm5-8x-8nic-driver570-spaces.txt")
    for there in ("NV18", " 0 ", "GPU7"):
        facts_of(report(name), topo=topo.replace(there, there.strip("0178 ") + number + " ").encode())


@given(st.text(max_size=200))
def test_any_matrix_at_all(text: str) -> None:
    facts_of(report("t4-1x-driver515.105-remapped-na.xml"), topo=text.encode("utf-8", "surrogatepass"))
