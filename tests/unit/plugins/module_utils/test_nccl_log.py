# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of nccl-tests: every recording as its index line says, layouts of all releases, damage, copies."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._nccl_log import parse_log
from ansible_collections.gpuops.cluster.plugins.module_utils._nccl_run import PROBLEMS
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures
from hypothesis import given, settings
from hypothesis import strategies as st

FOLDER = "nccl-tests"
EXPECTED = fixtures.expected("nccl_tests")
NAMES = fixtures.names(FOLDER)
PLACES = ("out_of_place", "in_place")


@cache
def log(name: str) -> str:
    return fixtures.text(FOLDER, name)


def cells(run: dict[str, Any], key: str) -> list[Any]:
    return [row[place].get(key) for row in run["rows"] for place in PLACES]


def test_every_recording_has_an_expectation() -> None:
    assert sorted(EXPECTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recording(name: str) -> None:
    runs = parse_log(log(name))
    assert len(runs) == len(EXPECTED[name])
    for run, wanted in zip(runs, EXPECTED[name]):
        assert run["collective"] == wanted["collective"]
        assert len(run["rows"]) == wanted["rows"]
        assert list(run["peak"].values()) == (wanted["peak"] or [None, None])
        assert run["avg_busbw"] == wanted["avg"]
        assert run["out_of_bounds"] == wanted["out_of_bounds"]
        assert run["problems"] == wanted["problems"]
        assert run["complete"] is ("incomplete" not in wanted["problems"])
        if wanted["hosts"]:
            assert len({device["host"] for device in run["devices"]}) == wanted["hosts"]
        if wanted["ranks"] and wanted["rows"] != 112:
            assert run["ranks"] == wanted["ranks"]


@pytest.mark.parametrize("name", NAMES)
def test_the_cells_of_a_recording(name: str) -> None:
    for run, wanted in zip(parse_log(log(name)), EXPECTED[name]):
        errors = [error for error in cells(run, "error") if error is not None]
        if "error_max" in wanted:
            assert max(errors) == wanted["error_max"]
        else:
            assert errors == []
            assert sum(wrong or 0 for wrong in cells(run, "wrong")) == (wanted["wrong"] or 0)
        if "not_available" in wanted:
            checked = [wrong for wrong in cells(run, "wrong") if wrong is not None]
            assert len(run["rows"]) * 2 - len(checked) == wanted["not_available"]
        # The average that nccl-tests prints is that of all cells: the figures are in the right columns.
        figures = [busbw for busbw in cells(run, "busbw") if busbw is not None]
        average = wanted.get("mean", wanted["avg"])
        if figures and average is not None:
            assert sum(figures) / len(figures) == pytest.approx(average, abs=0.05)


def test_unchecked_data_has_no_wrong_count() -> None:
    for name in NAMES:
        for run in parse_log(log(name)):
            assert (run["wrong"] is not None) <= run["checked"]
            assert run["checked"] or run["wrong"] is None
            assert ("not_checked" in run["problems"]) is (bool(run["rows"]) and not run["checked"])


def test_a_run_in_full() -> None:
    (run,) = parse_log(log("gh200-2x-allreduce-2.18.log"))
    assert {key: run[key] for key in ("version", "nccl_version", "ranks", "wrong", "checked")} == {
        "version": "2.18.2",
        "nccl_version": "2.30.7",
        "ranks": 2,
        "wrong": 0,
        "checked": True,
    }
    assert run["devices"][1] == {
        "rank": 1,
        "host": "node00002",
        "pid": 24926,
        "device": 0,
        "bus": "0009:01:00",
        "name": "NVIDIA GH200 120GB",
    }
    assert run["rows"][7] == {
        "size": 134217728,
        "count": 33554432,
        "type": "float",
        "redop": "sum",
        "root": -1,
        "out_of_place": {"time_us": 5871.07, "algbw": 22.86, "busbw": 22.86, "wrong": 0},
        "in_place": {"time_us": 5867.43, "algbw": 22.88, "busbw": 22.88, "wrong": 0},
    }


# Layouts

HEAD = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1\n"
)
DEVICES = "".join(
    f"#  Rank {rank:2d} Group  0 Pid   10{rank} on      n{rank} device  0 [0x0f] NVIDIA H100\n" for rank in (0, 1)
)
TITLE = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
    "     time   algbw   busbw  #wrong \n"
)
ROW = (
    "     1048576        262144     float     sum      -1   339.61    3.09    3.09       0"
    "   335.85    3.12    3.12       0"
)
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 3.105 \n#\n"
WHOLE = HEAD + DEVICES + TITLE + ROW + "\n" + END


@pytest.mark.parametrize(
    ("title", "row", "redop", "root", "key"),
    [
        ("size count type redop time algbw busbw error time algbw busbw error",
         "8 2 float sum 10.1 1.00 2.00 1e-07 10.2 1.01 2.01 2e-07", "sum", None, "error"),
        ("size count type redop time algbw busbw error time algbw busbw error",
         "8 2 float 10.1 1.00 2.00 0e+00 10.2 1.01 2.01 0e+00", None, None, "error"),
        ("size count type root time algbw busbw error time algbw busbw error",
         "8 2 float 0 10.1 1.00 2.00 0e+00 10.2 1.01 2.01 0e+00", None, 0, "error"),
        ("size count type redop root time algbw busbw error time algbw busbw error",
         "8 2 float sum 3 10.1 1.00 2.00 1e-07 10.2 1.01 2.01 1e-07", "sum", 3, "error"),
        ("size count type time algbw busbw error time algbw busbw error",
         "8 2 float 10.1 1.00 2.00 0e+00 10.2 1.01 2.01 0e+00", None, None, "error"),
        ("bytes N type op time algbw busbw res time algbw busbw res",
         "8 2 float sum 10.1 1.00 2.00 1e-07 10.2 1.01 2.01 1e-07", "sum", None, "error"),
        ("size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp",
         "8 2 float none 0 10.1 1.00 2.00 0 10.2 1.01 2.01 0 2025-05-01 12:00:00", "none", 0, "wrong"),
        ("size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong",
         "8 2 bfloat16 max -1 10.1 1.00 2.00 0 10.2 1.01 2.01 0", "max", -1, "wrong"),
        ("size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv%"
         " time algbw busbw #wrong i_min i_max i_p99 i_cv%",
         "8 2 f8e4m3 sum -1 10.1 1.00 2.00 0 9.1 12.0 11.9 3.20 10.2 1.01 2.01 0 9.2 12.1 11.8 3.30",
         "sum", -1, "wrong"),
        ("size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
         "8 2 float sum -1 1.2e+07 1.00 2.00 0 10.2 1.01 2.01 N/A", "sum", -1, "wrong"),
        ("size count type redop root time algbw busbw #wrong time algbw busbw #wrong algo proto nchannels",
         "8 2 float sum -1 10.1 1.00 2.00 0 10.2 1.01 2.01 0 Direct SIMPLE 32", "sum", -1, "wrong"),
    ],
)  # fmt: skip
def test_layouts(title: str, row: str, redop: str | None, root: int | None, key: str) -> None:
    (run,) = parse_log(f"# {title}\n  {row}\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 2.005 OK\n")
    assert run["problems"] == [] and run["avg_busbw"] == 2.005
    (found,) = run["rows"]
    assert (found["size"], found["count"], found["redop"], found["root"]) == (8, 2, redop, root)
    assert (found["out_of_place"]["busbw"], found["in_place"]["busbw"]) == (2.0, 2.01)
    assert found["out_of_place"][key] is not None
    words = row.split()
    for place in range(len(words)):  # a row that lacks any cell is no row
        (broken,) = parse_log(f"# {title}\n  {' '.join(words[:place] + words[place + 1 :])}\n{END}")
        if redop and words[place] == redop and root is None:
            continue  # a release that leaves the operation blank
        assert broken["rows"] == [] and "incomplete" in broken["problems"], place


def test_a_log_that_begins_below_its_header() -> None:
    (run,) = parse_log(f"{ROW}\n{ROW}\n{END}")
    assert len(run["rows"]) == 2 and run["problems"] == []
    assert parse_log(f"{ROW[:-3]}\n{END}")[0]["rows"] == []


# What launchers and NCCL put into a log


@pytest.mark.parametrize(
    "tag",
    ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-n1-4711@1,0]<stdout>: ", "0: ", " 0: ", "00: ", "[0] ", "n1: ",
     "gpu-01.cluster.example: ", "[pod/launcher-abc/mpi] ", "2025-05-01T10:00:00.123456789Z ", "    ",
     "   [1,0]<stdout>:", "2025-05-01T10:00:00Z [1,0]<stdout>:", "Thu May  1 10:00:00 2025[1,0]<stdout>:"],
)  # fmt: skip
def test_tags(tag: str) -> None:
    assert parse_log("".join(f"{tag}{line}\n" for line in WHOLE.splitlines())) == parse_log(WHOLE)


@pytest.mark.parametrize("host", ["n1", "gpu-node-01", "gpu-01.cluster.example", "a100"])
@pytest.mark.parametrize(
    "info", ["{}:123:456 [0] NCCL INFO Channel 00 : 0 1", "{}:1:2 [0] misc/ibvwrap.cc:1 NCCL WARN slow"]
)
@pytest.mark.parametrize("place", [52, 85])  # where nccl-tests stops to print, and runs a test
@pytest.mark.parametrize("tag", ["", "[1,0]<stdout>:"])
def test_a_row_with_the_log_of_nccl_in_it(host: str, info: str, place: int, tag: str) -> None:
    said = info.format(host)
    row = f"{ROW[:place]}{said}\n{said}\n{ROW[place:]}"
    text = "".join(f"{tag}{line}\n" for line in (HEAD + DEVICES + TITLE + row + "\n" + END).splitlines())
    assert parse_log(text) == parse_log(WHOLE)


def test_a_row_in_three_pieces_with_a_glued_cell() -> None:
    row = ROW.replace("3.09       0", "3.09     N/A")
    cut = row.index("N/A") + 3
    text = f"{row[:52]}n1:1:2 [0] NCCL INFO a\n{row[52:cut]}n1:1:2 [0] NCCL INFO b\n{row[cut:]}"
    assert parse_log(WHOLE.replace(ROW, text)) == parse_log(WHOLE.replace(ROW, row))


def test_a_row_whose_rest_never_comes() -> None:
    (run,) = parse_log(WHOLE.replace(ROW, f"{ROW[:52]}n1:1:2 [0] NCCL INFO a\n{ROW}"))
    assert len(run["rows"]) == 1 and run["problems"] == ["incomplete"]
    (run,) = parse_log(WHOLE.replace(ROW, ROW[52:]))
    assert run["rows"] == [] and run["problems"] == ["incomplete", "no_rows"]


def test_the_end_of_a_cut_log_is_not_a_result() -> None:
    wrong = ROW[:-2] + "12"
    for before in (TITLE, f"{TITLE}{ROW}\n"):
        count = before.count("sum")
        assert len(parse_log(HEAD + DEVICES + before + wrong)[0]["rows"]) == count + 1
        assert len(parse_log(HEAD + DEVICES + before + wrong[:-1])[0]["rows"]) == count
        assert len(parse_log(HEAD + DEVICES + before + wrong[:-1] + "\n")[0]["rows"]) == count + 1


# Several runs, and copies


def test_several_collectives_in_one_log() -> None:
    gather = WHOLE.replace("     sum      -1", "    none      -1")
    runs = parse_log(f"+ mpirun all_reduce_perf -b 8\n{WHOLE}\n+ mpirun build/all_gather_perf -b 8\n{gather}")
    assert [run["collective"] for run in runs] == ["all_reduce", "all_gather"]
    assert [run["problems"] for run in runs] == [[], []]


def test_a_crash_is_that_of_its_run() -> None:
    crash = "n1: Test CUDA failure common.cu:1304 'out of memory'\n .. n1 pid 1: Test failure common.cu:1189\n"
    runs = parse_log(WHOLE + HEAD + DEVICES + crash + WHOLE)
    assert [run["problems"] for run in runs] == [[], ["incomplete", "no_rows", "crashed", "cuda_error"], []]


def test_a_log_cut_before_the_next_run() -> None:
    runs = parse_log(HEAD + DEVICES + TITLE + ROW + "\n" + WHOLE)
    assert [run["problems"] for run in runs] == [["incomplete"], []]


def alone(host: str, ranks: int = 8) -> list[str]:
    """What one node prints that runs all by itself: healthy, as far as it knows."""
    devices = [
        f"#  Rank {rank:2d} Group  0 Pid 10{rank} on  {host} device {rank} [0x0f] NVIDIA H100" for rank in range(ranks)
    ]
    return [HEAD.rstrip(), "#", "# Using devices", *devices, "#", TITLE.rstrip(), ROW, ROW, *END.splitlines()]


@pytest.mark.parametrize("tags", [("", ""), ("0: ", "1: "), ("[1,0]<stdout>:", "[1,8]<stdout>:")])
@pytest.mark.parametrize("ranks", [1, 8])
def test_two_nodes_that_each_run_alone(tags: tuple[str, str], ranks: int) -> None:
    one, two = ([tag + line for line in alone(host, ranks)] for tag, host in zip(tags, ("n1", "n2")))
    mixed = [line for pair in zip(one, two) for line in pair]
    for run in parse_log("\n".join(mixed) + "\n"):
        assert "interleaved_copies" in run["problems"]
        assert ("single_rank" in run["problems"]) is (ranks == 1)
        assert run["ranks"] == ranks
    if tags[0]:  # one after the other, as buffers may have it
        runs = parse_log("\n".join(one + two) + "\n")
        assert [run["problems"][0] for run in runs] == ["interleaved_copies"] * 2


def test_runs_of_one_node_after_the_other_are_no_copies() -> None:
    runs = parse_log("\n".join(alone("n1") + alone("n2")) + "\n")
    assert [run["problems"] for run in runs] == [[], []]
    labelled = [f"{host}: {line}" for host in ("n01", "n02") for line in alone(host)]
    assert [run["problems"] for run in parse_log("\n".join(labelled) + "\n")] == [[], []]


# Failures


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("USAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n", {"usage"}),
        ("Invalid number of GPUs: 8 requested but only 4 were found.\n", {"usage"}),
        ("invalid size specified for 'minbytes'\n", {"usage"}),
        ("bash: line 1: all_reduce_perf: command not found\n", {"crashed"}),
        ("all_reduce_perf: error while loading shared libraries: libnccl.so.2: no such file\n", {"crashed"}),
        ("srun: error: n2: task 8: Segmentation fault (core dumped)\n", {"crashed"}),
        ("mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).\n", {"crashed"}),
        ("n1: Test NCCL failure common.cu:1 'unhandled system error / '\n", {"crashed", "nccl_error"}),
        ("n1: Test NCCL failure common.cu:1 'remote process exited or a network error'\n", {"crashed", "nccl_error"}),
        ("n1: Test CUDA failure common.cu:1 'invalid device ordinal'\n", {"crashed", "cuda_error"}),
        ("n1: Test timeout (60s) all_reduce.cu:93\n", {"crashed"}),
        ("n1:1:2 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open: Segmentation fault\n", set()),
        ("nothing of interest\n", set()),
    ],
)  # fmt: skip
def test_failures(said: str, found: set[str]) -> None:
    (run,) = parse_log(said)
    assert set(run["problems"]) == {"incomplete", "no_rows"} | found
    (run,) = parse_log(HEAD + DEVICES + said)
    assert set(run["problems"]) == {"incomplete", "no_rows"} | found


def test_an_exit_code_for_wrong_data_is_no_crash() -> None:
    wrong = WHOLE.replace("0 OK", "3 FAILED") + "srun: error: n1: task 0: Exited with exit code 1\n"
    assert parse_log(wrong)[0]["problems"] == ["wrong_data"]


def test_line_ends_of_windows() -> None:
    """One recording came with them; it is kept without, for the sanity tests want none."""
    for name in NAMES:
        assert parse_log(log(name).replace("\n", "\r\n")) == parse_log(log(name))


def test_an_empty_log_has_no_run() -> None:
    assert parse_log("") == parse_log("\n \n") == []


# Properties


def check(text: str) -> list[dict[str, Any]]:
    started = time.process_time()
    runs = parse_log(text)
    assert time.process_time() - started < 1
    for run in runs:
        assert run["problems"] == [code for code in PROBLEMS if code in run["problems"]]
        assert ("no_rows" in run["problems"]) is not bool(run["rows"])
        assert ("incomplete" in run["problems"]) is not run["complete"]
    return runs


def rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for run in runs for row in run["rows"]]


@given(st.sampled_from(NAMES), st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_any_prefix_has_the_same_first_rows(name: str, share: float) -> None:
    text = log(name)
    found = rows(check(text[: int(len(text) * share)]))
    assert found == rows(parse_log(text))[: len(found)]


@given(st.sampled_from(NAMES), st.floats(0, 1, exclude_max=True), st.characters())
@settings(deadline=None, max_examples=200)
def test_any_mutated_character(name: str, share: float, character: str) -> None:
    text = log(name)
    place = int(len(text) * share)
    found = rows(check(text[:place] + character + text[place + 1 :]))
    same = rows(parse_log(text))
    assert sum(1 for row in found if row not in same) <= 1


@given(st.sampled_from(NAMES), st.floats(0, 1, exclude_max=True))
@settings(deadline=None, max_examples=100)
def test_any_removed_word_makes_no_other_row(name: str, share: float) -> None:
    lines = log(name).splitlines()
    table = [number for number, line in enumerate(lines) if line.split()[:1] and line.split()[0].isdigit()]
    if not table:
        return
    same = rows(parse_log(log(name)))
    number = table[int(len(table) * share)]
    words = lines[number].split()
    for place in range(len(words)):
        changed = [*lines[:number], "  ".join(words[:place] + words[place + 1 :]), *lines[number + 1 :]]
        for row in rows(check("\n".join(changed) + "\n")):
            assert {**row, "redop": None} in [{**other, "redop": None} for other in same]


HUGE = ["9" * 5000, "1e999", "1e+99999", "\u00b2", "\u0663"]


@pytest.mark.parametrize("number", HUGE)
def test_numbers_that_are_none(number: str) -> None:
    for text in (ROW.replace("1048576", number), ROW.replace("3.09", number), ROW.replace("-1", number)):
        assert rows(check(WHOLE.replace(ROW, text))) == []
    for there in ("10", "0 OK", "3.105"):
        check(WHOLE.replace(there, number))


@given(st.text(max_size=500))
def test_any_text_at_all(text: str) -> None:
    check(text)


def test_a_thousand_ranks_are_read_in_a_moment() -> None:
    devices = "".join(
        f"#  Rank {rank} Group  0 Pid 1{rank} on n{rank // 8} device {rank % 8} [0x0f] NVIDIA H100\n"
        for rank in range(1440)
    )
    info = "".join(
        f"n{rank // 8}:1:2 [{rank % 8}] NCCL INFO Channel {channel}\n" for rank in range(1440) for channel in range(8)
    )
    (run,) = check(HEAD + devices + info + TITLE + f"{ROW}\n" * 30 + END)
    assert run["ranks"] == 1440 and len(run["rows"]) == 30 and run["problems"] == []
