# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who differs, who is sick, who is absent; with hosts that send anything but what they should."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _audit_html, _audit_merge, _audit_text
from ansible_collections.gpuops.cluster.tests.unit.support.fleet import VERSIONS, look, without_gpus
from hypothesis import given, settings
from hypothesis import strategies as st


def merged(looks: dict[str, Any], ignore: list[str] | None = None, **kinds: str) -> dict[str, Any]:
    """The report; hosts are GPU nodes unless `kinds` says otherwise."""
    of_kind = {name: kinds.get(name, "gpu_nodes") for name in looks}
    wanted = [name for name, kind in of_kind.items() if kind == "gpu_nodes"]
    report = _audit_merge.document(looks, of_kind, wanted, ignore or [], "2026-01-02T03:04:05Z")
    assert json.loads(json.dumps(report)) == report
    return report


def item(report: dict[str, Any], name: str, kind: str = "gpu_nodes") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in report["kinds"] if one["kind"] == kind)["items"][name]
    return found


def printed(report: dict[str, Any]) -> list[str]:
    return [line for line, _colour in _audit_text.lines(report)]


def test_equal_hosts_are_clean() -> None:
    report = merged({"n1": look(), "n2": look(), "ctl": without_gpus()}, ctl="slurm_controllers")
    assert report["verdict"] == "clean"
    assert report["summary"] == "3 hosts, no problems, no drift"
    assert report["counts"] == {"hosts": 3, "answered": 3, "absent": 0, "unhealthy": 0, "drift": 0, "differing": 0}


def test_one_differs_from_the_majority_of_its_kind() -> None:
    looks = {f"n{i}": look() for i in range(1, 12)}
    looks["n10"] = look(kernel="5.15.0-119-generic")
    report = merged(looks)
    assert report["verdict"] == "findings"
    assert item(report, "kernel") == {
        "usual": "5.15.0-125-generic",
        "usual_hosts": 10,
        "differing": [{"value": "5.15.0-119-generic", "hosts": ["n10"]}],
        "unknown": [],
    }
    assert "  differs  n10  Kernel 5.15.0-119-generic (10 of 11 gpu_nodes: 5.15.0-125-generic)" in printed(report)


def test_hosts_of_different_kinds_are_not_compared() -> None:
    looks = {"n1": look(), "n2": look(), "ctl": without_gpus(kernel="6.1.0-9")}
    assert merged(looks, ctl="slurm_controllers")["verdict"] == "clean"
    assert merged(looks)["counts"]["drift"] > 5


@pytest.mark.parametrize("versions", [["a", "b"], ["a", "a", "b", "b"], ["a", "a", "b", "c"]])
def test_without_a_majority_all_are_named(versions: list[str]) -> None:
    report = merged({f"n{i}": look(kernel=version) for i, version in enumerate(versions)})
    found = item(report, "kernel")
    assert found["usual"] is None and found["usual_hosts"] == 0
    assert sum(len(group["hosts"]) for group in found["differing"]) == len(versions)
    assert any("no majority of gpu_nodes" in line for line in printed(report))


def test_what_is_unknown_has_no_vote() -> None:
    """A driver that does not answer says nothing of the GPUs; that is a problem and no difference."""
    silent = look(("no_answer", "", "gave no answer in 60 s"), gpus=None)
    report = merged({"n1": look(), "n2": silent, "n3": silent})
    assert item(report, "gpus") == {
        "usual": VERSIONS["gpus"],
        "usual_hosts": 1,
        "differing": [],
        "unknown": ["n2", "n3"],
    }
    assert report["counts"]["unhealthy"] == 2 and report["counts"]["drift"] == 0


def test_equal_problems_are_told_once() -> None:
    problem = ("port_down", "mlx5_3", "mlx5_3:1 is down, physical state Polling")
    other = ("row_remap_failed", "GPU 3", "a memory row could not be remapped")
    report = merged({"n1": look(problem, other), "n2": look(problem), "n3": look(problem)})
    assert [(one["code"], one["hosts"]) for one in report["health"]] == [
        ("port_down", ["n1", "n2", "n3"]),
        ("row_remap_failed", ["n1"]),
    ]
    assert "  problem  n[1-3]  port_down mlx5_3: mlx5_3:1 is down, physical state Polling" in printed(report)
    assert report["counts"]["unhealthy"] == 3


def test_a_gpu_node_without_gpus_is_sick_and_another_host_needs_no_driver() -> None:
    driver = ("no_driver", "", "there is no nvidia-smi")
    report = merged({"n1": without_gpus(), "ctl": look(driver, gpus=None)}, ctl="slurm_controllers")
    assert [(one["code"], one["hosts"]) for one in report["health"]] == [("no_gpu", ["n1"])]
    assert merged({"n1": look(driver)})["health"][0]["code"] == "no_driver"


def test_hosts_without_an_answer_are_listed_with_the_reason() -> None:
    looks = {
        "n1": look(),
        "n2": {"unreachable": True, "msg": "Task failed: Failed to connect: \x1b[31mno route\x1b[0m"},
        "n3": {"module_stderr": "python3: not found", "rc": 127},
        "n4": {},
    }
    report = merged(looks)
    assert report["absent"] == [
        {"host": "n2", "reason": "Failed to connect: [31mno route [0m", "unreachable": True},
        {"host": "n3", "reason": "python3: not found", "unreachable": False},
        {"host": "n4", "reason": "gave no answer", "unreachable": False},
    ]
    assert report["summary"] == "4 hosts, 3 without an answer, no problems, no drift"
    assert report["verdict"] == "findings"
    assert merged({"n1": {}})["summary"] == "1 host, 1 without an answer"


def test_what_is_ignored_is_not_judged_and_stays_in_the_report() -> None:
    looks = {
        "n1": look(("port_down", "mlx5_3", ""), ("port_down", "mlx5_4", "")),
        "n2": look(kernel="6"),
        "n3": look(),
    }
    report = merged(looks, ignore=["kernel", "port_down mlx5_3"])
    assert [problem["device"] for problem in report["health"]] == ["mlx5_4"]
    assert report["counts"]["drift"] == 0
    assert report["ignored"] == {"words": ["kernel", "port_down mlx5_3"], "problems": 1}
    assert report["hosts"]["n2"]["versions"]["kernel"] == "6"
    assert [problem["ignored"] for problem in report["hosts"]["n1"]["problems"]] == [True, False]


def test_words_that_nothing_can_be_ignored_by_are_refused() -> None:
    assert not _audit_merge.refused(["kernel", "port_down", "port_down mlx5_3", "no_gpu"])
    assert "'kernle' is neither" in _audit_merge.refused(["kernle"])[0]


HOSTILE = "<script>alert(1)</script>\x1b[2J\x07\r\n\u202eevil\x9b31m\ud800"


def test_hostile_texts_reach_neither_the_terminal_nor_the_page() -> None:
    bad = look(("gpu_lost", HOSTILE, HOSTILE), **dict.fromkeys(VERSIONS, HOSTILE))
    report = merged({"n1": look(), "n2": bad, "n3": {"unreachable": True, "msg": HOSTILE}, "n4": look()})
    for line in printed(report):
        assert line.isprintable(), repr(line)
    page = _audit_html.page(report)
    assert "<script" not in page and "&lt;script&gt;" in page
    assert all(char.isprintable() or char == "\n" for char in page)
    page.encode()


def test_long_texts_and_many_problems_are_cut() -> None:
    report = merged({"n1": look(*[("xid", f"GPU {i}", "") for i in range(5000)], kernel="x" * 10**6)})
    assert len(report["hosts"]["n1"]["versions"]["kernel"]) == _audit_merge.LONGEST_TEXT
    assert len(report["hosts"]["n1"]["problems"]) == _audit_merge.MOST_PROBLEMS
    assert len(printed(report)) < 60


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["audit", "versions", "problems", "msg", "code", "device", "detail", "kernel", "unreachable"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON, JSON)
def test_no_shape_of_an_answer_breaks_the_report(first: Any, second: Any) -> None:
    report = merged({"n1": look(), "n2": first, "n3": {"audit": first}, "n4": {"audit": {"versions": second}}})
    assert report["counts"]["hosts"] == 4
    assert len(report["hosts"]) + len(report["absent"]) == 4
    printed(report)
    _audit_html.page(report)


def synthetic(count: int) -> dict[str, Any]:
    """A fleet in which everything happens to a few."""
    chance = random.Random(7)
    looks: dict[str, Any] = {}
    for number in range(1, count + 1):
        problems = [("ecc_uncorrectable", f"GPU {number % 8}", f"{number} errors")] if chance.random() < 0.05 else []
        versions = {"kernel": f"5.15.0-{chance.randrange(100, 125)}-generic"} if chance.random() < 0.05 else {}
        looks[f"gpu{number:04d}"] = look(*problems, **versions)
    return looks


def test_a_thousand_hosts_take_well_under_a_second() -> None:
    looks = synthetic(1000)
    started = time.process_time()
    report = merged(looks)
    lines = printed(report)
    page = _audit_html.page(report)
    assert time.process_time() - started < 1
    assert len(lines) < 60
    assert page.count("<tr>") > 1000


def test_the_merge_is_linear() -> None:
    """Eight times the hosts cost eight times the work, not 64 times."""

    def cost(looks: dict[str, Any]) -> float:
        def once() -> float:
            started = time.process_time()
            printed(merged(looks))
            return time.process_time() - started

        return min(once() for _attempt in range(3))

    assert cost(synthetic(4000)) < 20 * cost(synthetic(500))


def test_a_thousand_equal_hosts_take_few_lines() -> None:
    lines = printed(merged({f"n{i}": look() for i in range(1000)}))
    assert lines[:2] == ["audit: 1,000 hosts, no problems, no drift", "gpu_nodes, 1,000 hosts"]
    assert len(lines) == 2 + len(VERSIONS)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1"], "n1"),
        (["n1", "n2"], "n1, n2"),
        (["n1", "n3", "n2"], "n[1-3]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["n8", "n08"], "n8, n08"),
        (["gpu-1.cluster2.example", "gpu-2.cluster2.example", "gpu-3.cluster2.example"], "gpu-[1-3].cluster2.example"),
        (["10.0.0.9", "10.0.0.10", "10.0.0.11"], "10.0.0.[9-11]"),
        (["ctl", "login", "ctl"], "ctl, login"),
        ([f"n{i}" for i in range(0, 40, 2)], "n0, n2, n4, n6, n8, n10, n12, n14 and 12 more"),
    ],
)
def test_names_are_folded(names: list[str], text: str) -> None:
    assert _audit_text.fold(names) == text


def test_the_page_begins_with_the_verdict() -> None:
    page = _audit_html.page(merged({"n1": look(), "n2": look(("gpu_lost", "GPU 3", "")), "n3": look(nccl="none")}))
    places = [page.index(text) for text in ("A host has problems", "gpu_lost", "Who differs", "gpu_nodes: versions")]
    assert places == sorted(places)
    assert "Every host of gpu_nodes (3)" in page
    assert "Every host" not in _audit_html.page(merged({"n1": look(), "n2": look()}))
    assert "http" not in page and "<script" not in page
    assert "Clean: no problems, no drift" in _audit_html.page(merged({"n1": look()}))
    assert "Hosts differ from each other" in _audit_html.page(merged({"n1": look(), "n2": look(os="x")}))
    assert "Not every host gave an answer" in _audit_html.page(merged({"n1": look(), "n2": {}}))
