# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a training run: which mode is wrong where, what holds scaling back, who is slow, what data lacks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _report_plot
from ansible_collections.gpuops.cluster.plugins.module_utils._training_judge import Limits
from ansible_collections.gpuops.cluster.plugins.module_utils._training_verdict import blocked, judge, said, unready

MODES = ("data_parallel", "sharded", "gradient_accumulation", "pipeline", "tensor_parallel")
NAMES = {"n1": "n1.example.org", "n2": "n2.example.org"}
RANKS = 8


def rank_times(compute: float = 0.100, data: float = 0.001, step: float = 0.105) -> dict[str, float]:
    return {"compute_s": compute, "data_s": data, "step_s": step}


def run(**changes: Any) -> dict[str, Any]:
    """Two nodes of four GPUs each, all well."""
    found: dict[str, Any] = {
        "ranks": [
            {"host": f"n{1 + rank // 4}", "device": rank % 4, "name": "NVIDIA H100", "torch": "2.13.0"}
            for rank in range(RANKS)
        ],
        "backend": "nccl",
        "tolerance": 1e-9,
        "sample_bytes": 150_000,
        "modes": [
            [{"mode": mode, "error": 2e-15, "of": "gradient of head.weight", "right": True}] * RANKS for mode in MODES
        ],
        "scaling": [
            {"ranks": 1, "samples": 16, "each": [rank_times(step=0.101)]},
            {"ranks": 4, "samples": 16, "each": [rank_times(step=0.103)] * 4},
            {"ranks": 8, "samples": 16, "each": [rank_times() for _unused in range(RANKS)]},
        ],
        "data": [
            {"workers": 7, "cores": 8, "files": 0, "samples_per_second": 400.0, "read": {}, "path": ""}
            for _unused in range(RANKS)
        ],
        **changes,
    }
    return {"rc": 0, "stdout": f"0: {json.dumps({'training': found})}\n", "stderr": "a warning"}


def row(verdict: dict[str, Any], begins: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in verdict["results"] if row["check"].startswith(begins))
    return found


def figure(result: dict[str, Any], name: str) -> float:
    return float(next(one["value"] for one in result["figures"] if one["name"] == name))


def test_all_well() -> None:
    verdict = judge(run(), NAMES, Limits())
    assert {result["status"] for result in verdict["results"]} == {"pass"}
    assert not verdict["culprits"]
    assert not verdict["warnings"]
    scaling = row(verdict, "scaling")
    assert figure(scaling, "efficiency") == pytest.approx(0.101 / 0.105)
    assert figure(scaling, "throughput") == pytest.approx(8 * 16 / 0.105)
    assert "most is lost to communication" in scaling["reason"]
    assert scaling["nodes"] == ["n1.example.org", "n2.example.org"]
    assert not [problem for plot in verdict["plots"] if (problem := _report_plot.problem(plot))]


def test_wrong_numbers_on_one_rank_name_it_and_on_all_name_nobody() -> None:
    found = run()
    modes = json.loads(found["stdout"][3:])["training"]["modes"]
    modes[3][5] = {"mode": "pipeline", "error": 0.25, "of": "gradient of blocks.5.up.weight", "right": False}
    verdict = judge(run(modes=modes), NAMES, Limits())
    bad = row(verdict, "pipeline")
    assert bad["status"] == "fail"
    assert "gradient of blocks.5.up.weight differs by 0.2 on n2.example.org GPU 1" in bad["reason"]
    assert [(one["kind"], one["host"], one["device"]) for one in verdict["culprits"]] == [
        ("gpu", "n2.example.org", "1")
    ]
    modes[3] = [modes[3][5]] * RANKS
    verdict = judge(run(modes=modes), NAMES, Limits())
    assert row(verdict, "pipeline")["status"] == "fail"
    assert not verdict["culprits"]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"step": 0.150}, "most is lost to communication, 33% of a step"),
        ({"compute": 0.140, "step": 0.145}, "most is lost to computing slower than one rank alone, 28% of a step"),
        ({"data": 0.045, "step": 0.150}, "most is lost to waiting for data"),
    ],
)
def test_low_efficiency_says_what_holds_it_back(times: dict[str, float], words: str) -> None:
    scaling = json.loads(run()["stdout"][3:])["training"]["scaling"]
    scaling[-1]["each"] = [rank_times(**times) for _unused in range(RANKS)]
    verdict = judge(run(scaling=scaling), NAMES, Limits())
    assert row(verdict, "scaling")["status"] == "fail"
    assert words in row(verdict, "scaling")["reason"]
    assert "87.5% is demanded" in row(verdict, "scaling")["reason"]
    assert not verdict["culprits"], "no rank is slower than the others"
    assert words in verdict["next_action"]
    assert verdict["next_action"].startswith(("Look at ", "Raise "))


def test_straggler_is_named_and_blamed_where_all_wait_for_it() -> None:
    scaling = json.loads(run()["stdout"][3:])["training"]["scaling"]
    scaling[-1]["each"] = [rank_times(compute=0.140 if rank == 6 else 0.1, step=0.145) for rank in range(RANKS)]
    verdict = judge(run(scaling=scaling), NAMES, Limits())
    assert "most is lost to waiting for the slowest rank" in row(verdict, "scaling")["reason"]
    assert "the slowest is n2.example.org GPU 2" in row(verdict, "balance")["reason"]
    assert [(one["host"], one["device"]) for one in verdict["culprits"]] == [("n2.example.org", "2")]
    assert "n2.example.org GPU 2 (1.40 x)" in verdict["warnings"][0]
    alone = judge(run(scaling=scaling), NAMES, Limits(efficiency=0.5))
    assert not alone["culprits"], "what passes has no culprit"
    assert alone["warnings"]


def loaders(**changes: Any) -> list[dict[str, Any]]:
    """One rank a node reads."""
    each = {"workers": 7, "cores": 8, "files": 12, "samples_per_second": 400.0, "path": "/data"}
    rates = [{"bytes_per_second": 2e8, "by": "fio"} if rank % 4 == 0 else {} for rank in range(RANKS)]
    return [{**each, "read": rates[rank], **changes} for rank in range(RANKS)]


def test_data_path_that_is_too_slow_for_its_ranks() -> None:
    data = loaders()
    good = judge(run(data=data), NAMES, Limits())
    assert row(good, "read rate")["status"] == "pass"
    data[4]["read"] = {"bytes_per_second": 5e7, "by": "one reader"}
    slow = row(judge(run(data=data), NAMES, Limits()), "read rate")
    assert slow["status"] == "fail"
    assert "n2.example.org reads 50 MB/s (one reader), its 4 ranks need 91.43" in slow["reason"]
    empty = row(judge(run(data=loaders(read={})), NAMES, Limits()), "read rate")
    assert (empty["status"], empty["nodes"]) == ("fail", ["n1.example.org", "n2.example.org"])


def test_idle_ranks_fail_with_the_user_s_data_and_warn_with_made_up_data() -> None:
    scaling = json.loads(run()["stdout"][3:])["training"]["scaling"]
    scaling[-1]["each"][7] = rank_times(data=0.03, step=0.105)
    real = row(judge(run(scaling=scaling, data=loaders()), NAMES, Limits()), "data loading")
    assert real["status"] == "fail"
    assert "n2.example.org GPU 3 waits for data 29% of a step" in real["reason"]
    assert "loaders of a rank: 7 on 8 cores" in real["reason"]
    made_up = judge(run(scaling=scaling), NAMES, Limits())
    assert row(made_up, "data loading")["status"] == "pass"
    assert "waits for data" in made_up["warnings"][0]


@pytest.mark.parametrize(
    "lost",
    ["RuntimeError: Connection closed by peer [10.0.0.2]", "DistNetworkError: failed to recv, got 0 bytes"],
)
def test_rank_that_failed_is_named_not_those_that_lost_it(lost: str) -> None:
    lines = [
        {"host": "n1", "rank": 0, "doing": "sharded", "error": lost},
        {"host": "n2.local", "rank": 5, "doing": "sharded", "error": "RuntimeError: an illegal memory access"},
    ]
    stdout = "\n".join(json.dumps({"training_failed": line}) for line in lines)
    verdict = judge({"rc": 1, "stdout": stdout, "stderr": ""}, NAMES, Limits())
    assert [result["status"] for result in verdict["results"]] == ["fail"]
    assert [one["host"] for one in verdict["culprits"]] == ["n2.example.org"]
    assert "rank 5, sharded data parallel (FSDP2): RuntimeError: an illegal memory access" in str(verdict["results"])


def test_every_host_that_failed_is_named_once() -> None:
    missing = "FileNotFoundError: the data path /data is no directory here"
    lines = [{"host": host, "rank": rank, "doing": "x", "error": missing} for host in ("n1", "n2") for rank in range(2)]
    stdout = "\n".join(json.dumps({"training_failed": line}) for line in lines)
    verdict = judge({"rc": 1, "stdout": stdout, "stderr": ""}, NAMES, Limits())
    assert [one["host"] for one in verdict["culprits"]] == ["n1.example.org", "n2.example.org"]


@pytest.mark.parametrize(
    ("rc", "stderr", "status", "words"),
    [
        (124, "", "fail", "a rank hangs"),
        (1, "srun: error: Unable to allocate resources: Requested nodes are busy", "blocked", "no free nodes"),
        (127, "bash: torchrun: not found\nsrun: error: n2: exited", "fail", "srun: error: n2: exited"),
        (0, "", "fail", "without a result"),
    ],
)
def test_launch_without_a_result(rc: int, stderr: str, status: str, words: str) -> None:
    verdict = judge({"rc": rc, "stdout": "", "stderr": stderr}, NAMES, Limits())
    assert [result["status"] for result in verdict["results"]] == [status]
    assert words in verdict["results"][0]["reason"]


def test_one_process_has_nothing_to_scale() -> None:
    answers = json.loads(run()["stdout"][3:])["training"]
    modes = [[{"mode": mode, "skipped": "one process has nothing to split"}] for mode in MODES[3:]]
    single = run(ranks=answers["ranks"][:1], modes=modes, scaling=answers["scaling"][:1], data=answers["data"][:1])
    verdict = judge(single, {"n1": "n1"}, Limits())
    assert row(verdict, "scaling")["status"] == "skipped"
    assert row(verdict, "pipeline")["status"] == "skipped"


def test_ranks_that_speak_at_once_are_all_heard() -> None:
    told = [json.dumps({"training_failed": {"rank": rank}}) for rank in range(2)]
    assert said(f"5: {told[0]}{told[1]}\n\n") == (None, [{"rank": 0}, {"rank": 1}])


def test_broken_lines_are_passed_over() -> None:
    assert said('{"training": {"ranks"\nnoise\n') == (None, [])


def test_nodes_that_are_not_ready_block_and_are_named() -> None:
    assert not unready({"n1": "0f3a9c2be117aa", "n2": "0f3a9c2be117aa"})
    found = unready({"n1": "0f3a9c2be117aa", "n2": "0f3a9c2be117aa", "n3": "9c1b00000000ff", "n4": "", "n5": None})
    assert list(found) == ["n3", "n4", "n5"]
    verdict = blocked(found)
    assert verdict["results"][0]["status"] == "blocked"
    said = verdict["results"][0]["reason"]
    assert "n3 has the environment of lock 9c1b00000000, 2 others that of 0f3a9c2be117" in said
    assert "n4 has no environment" in said
    assert "n5 gave no answer" in said
