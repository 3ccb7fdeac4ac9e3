"""The table at the end of a run: equal lines once, hosts named, hostile shapes ignored."""

from __future__ import annotations

from ansible_collections.gpuops.cluster.plugins.callback import summary


def test_equal_lines_of_several_hosts_are_printed_once() -> None:
    grouped = summary.group_lines({"n1": ["a", "b"], "n2": ["a"]})
    assert grouped == [("a", ["n1", "n2"]), ("b", ["n1"])]


def test_hosts_are_named_or_counted() -> None:
    names = [f"n{i}" for i in range(10)]
    assert summary.name_hosts(names, 10) == "all 10 hosts"
    assert summary.name_hosts(names[:2], 10) == "n0, n1"
    assert summary.name_hosts(names[:7], 10) == "n0, n1, n2 and 4 more"
    assert summary.name_hosts(["n1"], 1) == "n1"


def test_facts_of_another_shape_are_ignored() -> None:
    assert summary.role_lines({"ethernet": ["no such setting"], "x": "text"}) == ["ethernet: no such setting"]
    assert summary.role_lines("text") == []
    assert summary.role_lines(None) == []
