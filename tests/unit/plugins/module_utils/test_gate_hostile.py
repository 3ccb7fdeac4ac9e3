# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate on output that lies, breaks off or shouts, in the layouts of several releases, through the real parser."""

from __future__ import annotations

import json
import re
from typing import Any, Callable

import jsonschema
import pytest
from ansible_collections.gpuops.cluster.plugins.filter.nccl_results import FilterModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _gate_html, _gate_report, _report_chart
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_model import busbw_factor
from ansible_collections.gpuops.cluster.plugins.module_utils._gate_run import Gate
from ansible_collections.gpuops.cluster.tests.unit.support.gate_cluster import SCHEMA, Cluster, node, settings

parse = FilterModule().filters()["nccl_results"]
RELEASES = ("2.10", "2.13", "2.17", "2.19")


def table(release: str, collective: str, hosts: list[str], per_node: int, busbw: float, **given: Any) -> str:
    """What nccl-tests prints, in the layout of a release."""
    ranks = len(hosts) * per_node
    old, none = release == "2.10", given.get("wrong", "0e+00" if release == "2.10" else "0")
    new = release in ("2.17", "2.19")
    head = [f"# nccl-tests version {release}.4 nccl-headers=22703 nccl-library=22703"] if new else []
    head += [f"# Collective test starting: {collective}_perf"] if new else []
    head += ["# nThread 1 nGpus 1 minBytes 536870912 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20"]
    head += ["#", "# Using devices"]
    for rank in range(ranks):
        where = f"on {hosts[rank // per_node]:>10} device {rank % per_node:2d}"
        bus = f"[0000:{rank % per_node:02x}:00]" if new else f"[0x{rank % per_node:02x}]"
        head.append(
            f"#  Rank {rank:2d} {'' if old else 'Group  0 '}Pid {4000 + rank:6d} {where} {bus} NVIDIA H100 80GB HBM3"
        )
    last = "error" if old else "#wrong"
    root = "" if old else "    root"
    cells_ = f"     time   algbw   busbw {last}" * 2
    head.append(f"#       size         count      type   redop{root}{cells_}")
    rows = []
    for power in range(2):
        size, rate = 2**29 << power, busbw * (0.8 + 0.2 * power)
        algbw = rate / busbw_factor(collective, ranks)
        cell = f"{size / algbw / 1e3 if algbw else 0:9.1f} {algbw:7.2f} {rate:7.2f} {none:>6}"
        cell = given.get("cell", cell)
        kind = f"{size:12d} {size // 4:13d} {'float':>9} {'sum':>7}{'' if old else '      -1'}"
        rows.append(f"{kind} {cell} {cell}")
    tail = [f"# Out of bounds values : {given.get('bounds', '0 OK')}", f"# Avg bus bandwidth    : {busbw}", "#"]
    tail += [f"# Collective test concluded: {collective}_perf"] if new else []
    return "\n".join([*head, *rows, *tail]) + "\n"


class Hostile(Cluster):
    """All nodes are good but n2, whose launches `spoil` changes."""

    def __init__(self, release: str, spoil: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__()
        self.release, self.spoil = release, spoil

    def perf(self, words: list[str], names: list[str], outcome: dict[str, Any]) -> dict[str, Any]:
        collective = next(word for word in words if word.endswith("_perf")).split("/")[-1][: -len("_perf")]
        per_node = int(next(word for word in words if word.startswith("--ntasks-per-node=")).partition("=")[2])
        text = table(self.release, collective, names, per_node, 479.0 if len(names) == 1 else 366.0)
        outcome = {**outcome, "stdout": text}
        return self.spoil(self.release, outcome) if names == ["n2"] else outcome


def cells(text: str) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    return lambda release, outcome: {**outcome, "stdout": table(release, "all_reduce", ["n2"], 8, 479.0, cell=text)}


def side_by_side(text: list[str], copies: int) -> str:
    """Output of so many copies whose lines got mixed: each line comes as often before the next one does."""
    return "".join(line * copies for line in text)


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    return lambda _release, outcome: {**outcome, "stdout": "\n".join(change(outcome["stdout"].splitlines())) + "\n"}


HOSTILE: dict[str, tuple[Callable[[str, dict[str, Any]], dict[str, Any]], str]] = {
    "no time and no bandwidth": (cells("0.00 0.00 0.00 0"), "no bandwidth"),
    "not a number": (cells("nan nan nan 0"), ""),
    "unchecked": (cells("4200.0 255.0 479.0 N/A"), "not checked"),
    "wrong in place only, exit 0": (
        lambda release, outcome: {
            **outcome,
            "stdout": table(
                release, "all_reduce", ["n2"], 8, 479.0, wrong="3e+00" if release == "2.10" else "3", bounds="24 FAILED"
            ),
        },
        "wrong data",
    ),
    "silence, exit 0": (lambda _release, outcome: {**outcome, "stdout": ""}, "no usable result"),
    "usage, exit 0": (
        lambda _release, outcome: {**outcome, "stdout": "USAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n"},
        "usage",
    ),
    "cut after the first row, exit 0": (
        lines(lambda text: text[: [line[:1] for line in text].index(" ") + 1]),
        "breaks off",
    ),
    "one size short, exit 0": (
        lines(lambda text: [line for line in text if not line.strip().startswith(str(2**30))]),
        "ends at 536870912 bytes, 1073741824 were asked for",
    ),
    "sizes of a thousandth": (
        lines(lambda text: [re.sub(r"^ *(\d+)(?=  )", lambda m: str(int(m[1]) // 1024), line) for line in text]),
        "were asked for",
    ),
    "infinite": (cells("0.00 inf inf 0"), "no bandwidth"),
    "negative": (cells("4200.0 -255.0 -479.0 0"), "whose rows can be read"),
    "decimal commas": (cells("4200,0 255,00 479,00 0"), "whose rows can be read"),
    "thousands with commas": (cells("4,200.0 255.0 479.0 0"), "whose rows can be read"),
    "header twice": (
        lines(lambda text: [part for line in text for part in ([line] * 2 if "algbw" in line else [line])]),
        "copies",
    ),
    "one rank prints another table": (
        lambda release, outcome: {
            **outcome,
            "stdout": outcome["stdout"] + table(release, "all_reduce", ["n2"], 1, 9.0).replace("1073741824", "4096"),
        },
        "copies",
    ),
    "colours and markup": (
        lambda _release, outcome: {
            **outcome,
            "stdout": "",
            "rc": 1,
            "stderr": "\x1b[31;1mfatal error:\x1b[0m <img src=x onerror=alert(1)>\x1b]0;owned\x07\x00\u202e",
        },
        "ended with code 1: fatal error: <img src=x onerror=alert(1)>",
    ),
    "megabytes of words": (
        lambda _release, outcome: {**outcome, "stdout": ("[0] lorem 12 34 ipsum: error " * 40 + "\n") * 500},
        "no usable result",
    ),
    "megabytes of digits": (
        lambda _release, outcome: {**outcome, "stdout": "1 " * 200000 + "\n" + "7" * 400000},
        "no usable result",
    ),
    "table of another table": (lambda _release, outcome: {**outcome, "stdout": outcome["stdout"] * 2}, "2 copies"),
    "eight lone ranks": (
        lambda release, outcome: {**outcome, "stdout": table(release, "all_reduce", ["n2"], 1, 479.0) * 8},
        "8 copies, of 1 ranks",
    ),
    "four lone ranks that wrote side by side": (
        lambda release, outcome: {
            **outcome,
            "stdout": side_by_side(table(release, "all_reduce", ["n2"], 1, 479.0).splitlines(keepends=True), 4),
        },
        "4 copies",
    ),
    "half of the ranks": (
        lambda release, outcome: {**outcome, "stdout": table(release, "all_reduce", ["n2"], 4, 479.0)},
        "of 4 ranks",
    ),
    "on another node": (
        lambda release, outcome: {**outcome, "stdout": table(release, "all_reduce", ["n1"], 8, 479.0)},
        "ranks on n1",
    ),
    "binary rubbish": (lambda _release, outcome: {**outcome, "stdout": "\x00\ufffd\x1b[2J" * 5000}, "no usable result"),
    "rows of blanks": (lines(lambda text: [line for line in text if line.startswith("#")]), "no usable result"),
    "good table, killed": (
        lambda _release, outcome: {**outcome, "rc": 137, "stderr": "srun: error: n2: task 0: Killed"},
        "137",
    ),
    "good table, never ends": (lambda _release, outcome: {**outcome, "rc": -9, "timed_out": True}, "did not end"),
    "NCCL gives up after the table": (
        lines(
            lambda text: [
                *text,
                "n2: Test NCCL failure common.cu:450 'remote process exited or there was a network error'",
            ]
        ),
        "ended with code",
    ),
}


@pytest.fixture(autouse=True)
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts take most of a page's time, and are looked at elsewhere."""
    monkeypatch.setattr(_report_chart, "available", lambda: False)


def run(cluster: Cluster, **given: Any) -> dict[str, Any]:
    nodes = {name: node(name) for name in ("n1", "n2", "n3")}
    one = Gate(
        settings(isolate=False, **given), nodes, cluster.run, parse, cluster.said.append, cluster.logs.__setitem__
    )
    one.run()
    report = _gate_report.document(
        one, "2026-11-30T03:00:00Z", "2026-11-30T03:05:00Z", {"key": "", "proof": "", "values": {}}, ""
    )
    jsonschema.validate(report, SCHEMA)
    assert _gate_html.page(report)
    assert _gate_report.junit(report)
    assert json.loads(json.dumps(report)) == report
    return report


@pytest.mark.parametrize("release", RELEASES)
def test_good_output_of_every_release_passes(release: str) -> None:
    report = run(Hostile(release, lambda _release, outcome: outcome))
    assert report["verdict"] == "pass"
    software = report["stages"][1]["results"][0]["software"]
    assert software == ("" if release in ("2.10", "2.13") else f"nccl-tests {release}.4, NCCL 2.27.3")
    assert software in _gate_html.page(report)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_output_names_the_node(release: str, kind: str) -> None:
    spoil, words = HOSTILE[kind]
    report = run(Hostile(release, spoil))
    assert report["verdict"] == "fail"
    assert [(one["kind"], one["host"]) for one in report["culprits"]] == [("node", "n2")]
    assert words in report["culprits"][0]["evidence"]
    assert not set(map(ord, report["culprits"][0]["evidence"])) & {*range(32), 0x7F, 0x9B}, "nothing steers a terminal"


def test_smaller_tables_for_want_of_memory_are_judged_with_a_warning() -> None:
    def reduced(text: list[str]) -> list[str]:
        kept = [line for line in text if not line.strip().startswith(str(2**30))]
        return [kept[0], "#", "# Reducing maxBytes to 536870912 due to memory limitation", *kept[1:]]

    report = run(Hostile("2.17", lines(reduced)), expected={"node": 300})
    assert report["verdict"] == "pass"
    assert "n2: all_reduce was judged at 536870912 bytes" in " ".join(report["warnings"])


def test_table_that_contradicts_itself_is_a_warning() -> None:
    report = run(Hostile("2.17", cells("9999999.0 255.0 479.0 0")))
    assert report["verdict"] == "pass", "what it says of itself is good"
    assert "n2: all_reduce: 479 GB/s" in report["warnings"][0]
    assert "contradicts itself: 479 GB/s are printed, 0.1879 follow from size and time" in report["warnings"][0]


def test_fault_that_shows_at_large_sizes_alone() -> None:
    def slow(text: list[str]) -> list[str]:
        large = table("2.17", "all_reduce", ["n2"], 8, 240.0).splitlines()
        return [large[at] if line.strip().startswith(str(2**30)) else line for at, line in enumerate(text)]

    report = run(Hostile("2.17", lines(slow)))
    assert [(one["kind"], one["host"]) for one in report["culprits"]] == [("node", "n2")]
    assert "240 GB/s, below the floor" in report["culprits"][0]["evidence"]
    assert [point["busbw"] for point in report["stages"][1]["results"][1]["curve"]] == [383.2, 240.0]


def harmless(text: list[str]) -> list[str]:
    """What launchers and NCCL put around a good table."""
    noise = "n2:4711:4711 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    spoilt = [noise, *text, noise, "srun: warning: can't honor --ntasks-per-node", "\x1b[31mdone\x1b[0m"]
    return [line + "\r" for line in spoilt]


@pytest.mark.parametrize("release", RELEASES)
def test_noise_around_a_good_table_harms_nobody(release: str) -> None:
    assert run(Hostile(release, lines(harmless)))["verdict"] == "pass"


@pytest.mark.parametrize("release", RELEASES)
def test_tags_of_the_launcher_harm_nobody(release: str) -> None:
    assert run(Hostile(release, lines(lambda text: [f"0: {line}" for line in text])))["verdict"] == "pass"


def test_all_ranks_on_the_first_node_are_no_cluster() -> None:
    class OneHost(Hostile):
        def perf(self, words: list[str], names: list[str], outcome: dict[str, Any]) -> dict[str, Any]:
            return super().perf(words, names, outcome) if len(names) == 1 else self.spoilt(names, outcome)

        def spoilt(self, names: list[str], outcome: dict[str, Any]) -> dict[str, Any]:
            return {**outcome, "stdout": table("2.17", "all_reduce", ["n1"], 8 * len(names), 366.0)}

    report = run(OneHost("2.17", lambda _release, outcome: outcome), collectives=["all_reduce"])
    assert report["verdict"] == "fail"
    assert "ranks on n1, expected on 3 nodes" in report["stages"][2]["results"][0]["reason"]


def test_markup_in_output_stays_text() -> None:
    spoil = lines(lambda _text: ["<script>alert(1)</script> error: <b>boom</b>"])
    report = run(Hostile("2.17", spoil))
    assert "<script>" not in _gate_html.page(report)
