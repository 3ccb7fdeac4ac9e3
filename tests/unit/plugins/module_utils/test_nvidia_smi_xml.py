# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as untrusted input: hostile, damaged, wrapped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _nvidia_smi_xml
from ansible_collections.gpuops.cluster.plugins.module_utils._nvidia_smi_xml import read_report
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures
from ansible_collections.gpuops.cluster.tests.unit.support.replay import codes, facts_of
from ansible_collections.gpuops.cluster.tests.unit.support.report import H100, split

GPU = "<gpu id='0000:01:00.0'><product_name>%s</product_name></gpu>"


def document(name: str = "x", doctype: str = "", extra: str = "") -> bytes:
    gpu = GPU.replace("%s", name)
    body = f"<nvidia_smi_log><attached_gpus>1</attached_gpus>{extra}{gpu}</nvidia_smi_log>"
    return f"<?xml version='1.0'?>{doctype}{body}".encode()


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
SECRET = Path(__file__).resolve().as_uri()


@pytest.mark.parametrize(
    "doctype",
    [
        f'<!DOCTYPE nvidia_smi_log [<!ENTITY l0 "lol">{LAUGHS}]>',
        f'<!DOCTYPE nvidia_smi_log [<!ENTITY l11 SYSTEM "{SECRET}">]>',
        f'<!DOCTYPE nvidia_smi_log [<!ENTITY % l11 SYSTEM "{SECRET}"> %l11;]>',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY l11 "plain">]>',
    ],
    ids=["expansion", "external", "parameter", "plain"],
)
def test_entities_are_refused(doctype: str) -> None:
    started = time.process_time()
    facts = facts_of(document("&l11;", doctype))
    assert time.process_time() - started < 0.5
    assert facts["state"] == "degraded" and codes(facts) == [("report_truncated", None)]
    assert facts["count"] == 0 and "refused" in facts["reason"]


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    monkeypatch.setattr("builtins.open", lambda path, *_rest, **_more: opened.append(str(path)))
    return opened


def test_an_external_dtd_is_not_opened(no_files: list[str]) -> None:
    report = read_report(document(doctype=f'<!DOCTYPE nvidia_smi_log SYSTEM "{SECRET}">'))
    assert not report.damage and len(report.gpus) == 1
    assert no_files == []


def test_an_embedded_dtd_is_read_over() -> None:
    name = "grid-k520-driver352.99-embedded-dtd.xml"
    report = read_report(fixtures.data("nvidia-smi-xml", name))
    assert not report.damage and report.gpus[0].value("product_name") == "GRID K520"


def test_size_and_depth_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "<a>" * 500 + "</a>" * 500
    assert "deep" in read_report(document(extra=deep)).damage
    monkeypatch.setattr(_nvidia_smi_xml, "REPORT_LIMIT", 70_000)
    report = read_report(H100.encode())
    assert "longer than 70000 bytes" in report.damage and len(report.gpus) == 3


@pytest.mark.parametrize("filling", ["<gpu ", "<gpu>", "<a/>", "<a>x</a>", "&lt;", "x"])
def test_much_of_anything_costs_little(filling: str) -> None:
    text = filling * (4 * 1024 * 1024 // len(filling))
    started = time.process_time()
    for report in (document(extra=text), b"<nvidia_smi_log>" + text.encode()):
        facts = facts_of(report)
        assert facts["state"] == "degraded"
    assert time.process_time() - started < 4


def test_text_around_the_report() -> None:
    noise = b"\xff\xfe WARNING: something\n\n"
    report = read_report(noise + H100.encode() + b"\nWARNING: behind\n")
    assert not report.damage and len(report.gpus) == 8
    assert "something" in report.remarks and "behind" in report.remarks


@pytest.mark.parametrize("odd", [b"\xe9\xff", b"\x00\x01", b"\xef\xbf\xbf", "Größe €".encode()])
def test_odd_bytes_in_a_value(odd: bytes) -> None:
    report = read_report(document("NVIDIA @ X").replace(b"@", odd))
    assert not report.damage and str(report.gpus[0].value("product_name")).startswith("NVIDIA ")


def test_a_declared_encoding_is_not_believed() -> None:
    report = read_report(document().replace(b"version='1.0'", b"version='1.0' encoding='utf-16'"))
    assert not report.damage and len(report.gpus) == 1


def test_a_damaged_gpu_costs_only_its_own_tail() -> None:
    head, gpus, tail = split(H100)
    gpus[3] = gpus[3].replace("<vbios_version>", "<vbios<version>")
    facts = facts_of((head + "\n".join(gpus) + tail).encode())
    assert facts["count"] == 8 and codes(facts) == [("report_truncated", None)]
    assert [device["uuid"] is not None for device in facts["devices"]] == [True] * 8
    assert [device["memory_mib"] for device in facts["devices"]] == [81559] * 3 + [None] + [81559] * 4


@pytest.mark.parametrize("whole", [True, False])
def test_a_sentence_between_the_gpus(whole: bool) -> None:
    """What nvidia-smi writes when a GPU is lost while it prints the report."""
    said = "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n"
    head, gpus, tail = split(H100)
    report = head + "\n".join(gpus[:2]) + f"\n{said}" + "\n".join(gpus[3:]) + (tail if whole else "")
    facts = facts_of(report.encode())
    assert facts["count"] == 7
    assert [code for code, _device in codes(facts)] == [
        "gpu_lost",
        *([] if whole else ["report_truncated"]),
        "gpu_missing",
    ]


def test_a_second_report_is_not_read() -> None:
    report = read_report(document("one") + document("two"))
    assert [gpu.value("product_name") for gpu in report.gpus] == ["one"]
