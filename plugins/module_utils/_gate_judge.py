# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From launches of nccl-tests to judged measurements: a sample a launch, a median of several, a status, its reason."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any, Optional

from ansible_collections.gpuops.cluster.plugins.module_utils._gate_model import busbw_factor

# What a single launch can end as, worst first. Everything but `ok` is a failure of what was tested.
BROKEN = {
    "hang": "did not end within {seconds:.0f} s and was stopped",
    "crash": "ended with code {rc}: {detail}",
    "wrong": "moved wrong data: {detail}",
    "ranks": "ran as something else than one job of {ranks} ranks: {detail}",
    "no_rows": "printed no usable result: {detail}",
}
CAUSE = re.compile(
    r"segmentation fault|bus error|test (nccl|cuda) failure|NCCL WARN|out of memory|oom-kill", re.IGNORECASE
)
TELLING = re.compile(r"error|failure|failed|fatal|invalid|denied|refused|unreachable|not found", re.IGNORECASE)
STEERING = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd]"
)
SMALLER = re.compile(r"^#.*Reducing maxBytes to \d+ due to memory", re.MULTILINE)
ALONE = {"interleaved_copies", "single_rank"}
PLAIN = {  # the parser's codes in a person's words, the most telling first
    "usage": "it printed its usage, so this release does not know an option",
    "no_rows": "there is no table whose rows can be read",
    "incomplete": "its output breaks off",
}
CRASHES = {"crashed", "nccl_error", "cuda_error"}
DIP = 0.1  # a launch that far below the median of its test is worth a word
OUTLIER = 3.5  # modified z-score (Iglewicz and Hoaglin)


def bytes_of(text: str) -> float:
    """Bytes of a size as nccl-tests takes it: 1G, 64M, 8."""
    match = re.fullmatch(r"([0-9.]+)([KMGkmg]?)[A-Za-z]*", text.strip())
    return float(match.group(1)) * 1024 ** " kmg".index(match.group(2).lower() or " ") if match else 0.0


def last_words(text: str, limit: int = 200) -> str:
    """What a log says about a failure: the first line with a cause, else the last with an error, else the last.

    Fit for a terminal and a page: without colours and what else would steer them.
    """
    plain = STEERING.sub("", text)
    lines = [line.strip() for line in plain.splitlines() if any(letter.isalpha() for letter in line)]
    cause = next((line for line in lines if CAUSE.search(line)), "")
    telling = [line for line in lines if TELLING.search(line)]
    return (cause or (telling or lines or ["no output"])[-1])[:limit]


def started(outcome: dict[str, Any]) -> bool:
    """Whether nccl-tests itself came to speak: what ends before is the launcher's failure and measured nothing."""
    return bool(outcome["timed_out"]) or "# nThread" in outcome["stdout"] or outcome["rc"] == 0


def software(runs: list[dict[str, Any]]) -> str:
    """The releases that took part, as the run itself says them; older nccl-tests do not."""
    first = runs[0] if runs else {}
    parts = (("nccl-tests", first.get("version")), ("NCCL", first.get("nccl_version")))
    return ", ".join(f"{name} {version}" for name, version in parts if version and version != "0.0.0")


def misplaced(runs: list[dict[str, Any]], names: Sequence[str], known: dict[str, str]) -> str:
    """Whether ranks are on other nodes than on these `names`; `known` maps whatever a node calls itself to its name.

    Hosts that nobody knows prove nothing (all hosts of a cluster may be called localhost).
    """
    hosts = {str(device.get("host")).partition(".")[0] for run in runs for device in run.get("devices") or []}
    if not hosts or not hosts <= set(known):
        return ""
    seen = {known[host] for host in hosts}
    return "" if seen == set(names) else f"ranks on {', '.join(sorted(seen)[:4])}, expected on {len(names)} nodes"


def sample(
    outcome: dict[str, Any],
    runs: list[dict[str, Any]],
    collective: str,
    ranks: int,
    names: Sequence[str] = (),
    known: Optional[dict[str, str]] = None,
    end: float = 0.0,
) -> dict[str, Any]:
    """Judge one launch, whose largest size should be `end` bytes.

    `outcome` is what `nccl_launch` returned ({rc, stdout, stderr, seconds, timed_out}), `runs` what `nccl_results` made
    of its output; for `names` and `known` see `misplaced`.
    Returns {status, detail, size, busbw, in_place, seconds, curve: [{size, busbw}], software, contradiction}.
    """
    problems = {problem for run in runs for problem in run.get("problems") or []}
    if ranks == 1:
        problems.discard("single_rank")
    rows = [row for run in runs for row in run.get("rows") or [] if row.get("size")]
    words = last_words(outcome.get("stderr") or outcome.get("stdout") or "")
    # Copies that wrote into each other's lines are read as fewer runs than there are headers.
    copies = max(len(runs), outcome["stdout"].count("# nThread"))
    seen = ", ".join(dict.fromkeys(str(run.get("ranks")) for run in runs))
    status, detail = "ok", ""
    if outcome.get("timed_out"):
        status = "hang"
    elif "wrong_data" in problems or any(run.get("wrong") for run in runs):
        status, detail = "wrong", f"{sum(run.get('wrong') or 0 for run in runs)} elements differ"
    elif problems & CRASHES or outcome["rc"] not in (0, None):
        status, detail = "crash", words
    elif rows and (problems & ALONE or (len(runs) > 1 and "usage" not in problems)):
        status, detail = "ranks", f"{copies} copies, of {seen} ranks (is nccl-tests built with the launcher's MPI?)"
    elif not runs or not rows or problems & set(PLAIN):
        status, detail = "no_rows", next((PLAIN[code] for code in PLAIN if code in problems), words)
    elif runs[0].get("ranks") != ranks:
        status, detail = "ranks", f"{copies} copies, of {seen} ranks"
    elif astray := misplaced(runs, names, known or {}):
        status, detail = "ranks", astray
    elif "not_checked" in problems:
        status, detail = "no_rows", "the data was not checked"
    elif odd := _odd(rows, collective, ranks, 0.0 if SMALLER.search(outcome["stdout"]) else end):
        status, detail = "no_rows", odd
    text = BROKEN.get(status, "")
    result: dict[str, Any] = {
        "status": status,
        "detail": text.format(seconds=outcome["seconds"], rc=outcome["rc"], detail=detail, ranks=ranks),
        "size": None,
        "busbw": None,
        "in_place": None,
        "seconds": round(outcome["seconds"], 2),
        "curve": [],
        "software": software(runs),
        "contradiction": "",
    }
    if status == "ok":
        largest = max(rows, key=lambda row: row["size"])
        result["size"] = largest["size"]
        result["contradiction"] = contradiction(largest, collective, ranks)
        result["busbw"] = _busbw(largest, "out_of_place", collective, ranks)
        result["in_place"] = _busbw(largest, "in_place", collective, ranks)
        result["curve"] = [
            {"size": row["size"], "busbw": _busbw(row, "out_of_place", collective, ranks)} for row in rows
        ]
    return result


def _odd(rows: list[dict[str, Any]], collective: str, ranks: int, end: float = 0.0) -> str:
    """What is wrong with a table whose largest size should be `end` bytes; empty when nothing is."""
    row = max(rows, key=lambda row: row["size"])
    if row["size"] < 0.9 * end:
        return f"its table ends at {row['size']} bytes, {end:.0f} were asked for"
    if ranks > 1 and not _busbw(row, "out_of_place", collective, ranks):
        return "the largest size has no bandwidth"
    return ""


def contradiction(row: dict[str, Any], collective: str, ranks: int) -> str:
    """Bandwidth follows from size and time; what is said of a row where it does not."""
    busbw, took = _busbw(row, "out_of_place", collective, ranks), (row.get("out_of_place") or {}).get("time_us")
    if ranks < 2 or not busbw or not took:
        return ""
    derived = float(row["size"]) / float(took) / 1e3 * busbw_factor(collective, ranks)
    if abs(derived - busbw) <= max(0.05 * busbw, 0.02):
        return ""
    return f"{busbw:g} GB/s are printed, {derived:.4g} follow from size and time"


def _busbw(row: dict[str, Any], place: str, collective: str, ranks: int) -> Optional[float]:
    """GB/s as printed; of slow networks, where two decimals are too few, from the time."""
    cell = row.get(place) or {}
    busbw, took = cell.get("busbw"), cell.get("time_us")
    if busbw is not None and busbw < 1 and took and ranks > 1:
        finer = round(float(row["size"]) / float(took) / 1e3 * busbw_factor(collective, ranks), 5)
        return finer if finer < 1.01 else float(busbw)
    return None if busbw is None else float(busbw)


def variation(values: list[float]) -> float:
    """Coefficient of variation; 0 for fewer than two values."""
    mean = statistics.fmean(values) if values else 0
    return statistics.stdev(values) / mean if len(values) > 1 and mean else 0.0


def spread(values: list[float]) -> float:
    """How much a measurement varies: of five launches or more without the third that is farthest from the median.

    Healthy fleets have launches that dip now and then; at a thousand nodes some node always has one.
    """
    if len(values) < 5:
        return variation(values)
    middle = statistics.median(values)
    return variation(sorted(values, key=lambda value: abs(value - middle))[: len(values) - len(values) // 3])


def judge(samples: list[dict[str, Any]], limits: dict[str, Any]) -> dict[str, Any]:
    """Several launches of one test on the same nodes, as one measurement.

    `limits`: expected_gbps (None: unknown), floor (share of it), over (share above which a modelled value is flagged),
    modelled, max_cv, baseline_gbps (None: none), margin. Returns {status: pass | fail | unstable, reason, median_gbps,
    cv, floor_gbps, percent, flags}. Flags: over_limit, not_judged, dips.
    """
    expected = limits["expected_gbps"]
    floor = None if expected is None else round(expected * limits["floor"], 5)
    result: dict[str, Any] = {"floor_gbps": floor, "median_gbps": None, "cv": None, "percent": None, "flags": []}
    broken = [one for one in samples if one["status"] != "ok"]
    values = [one["busbw"] for one in samples if one["busbw"] is not None]
    if values:
        result["median_gbps"] = round(statistics.median(values), 5)
        result["cv"] = round(variation(values), 4)
    if expected and values:
        result["percent"] = round(100 * result["median_gbps"] / expected, 1)
    if broken:
        worst = min(broken, key=lambda one: list(BROKEN).index(one["status"]))
        return {**result, "status": "fail", "reason": f"{len(broken)} of {len(samples)} launches: {worst['detail']}"}
    if not values:
        return {**result, "status": "fail", "reason": "no launch gave a figure"}
    return {**result, **_compare(result, values, floor, limits)}


def _compare(
    result: dict[str, Any], values: list[float], floor: Optional[float], limits: dict[str, Any]
) -> dict[str, Any]:
    median, expected, baseline = result["median_gbps"], limits["expected_gbps"], limits.get("baseline_gbps")
    shaky = spread(values)
    if floor is not None and median < floor:
        few = f"{median:g} GB/s, below the floor of {floor:g} GB/s ({100 * limits['floor']:g} % of {expected:g})"
        if max(values) < floor or shaky <= limits["max_cv"]:
            return {"status": "fail", "reason": few}
    if shaky > limits["max_cv"]:
        extent = f"{min(values):g} to {max(values):g} GB/s in {len(values)} launches"
        return {
            "status": "unstable",
            "reason": f"{extent}: varies by {100 * shaky:.1f} %, more than {100 * limits['max_cv']:g} %",
        }
    if baseline and median < baseline * (1 - limits["margin"]):
        lost = 1 - median / baseline
        return {
            "status": "fail",
            "reason": f"{median:g} GB/s, {100 * lost:.0f} % below this hardware's baseline of {baseline:g} GB/s",
        }
    if expected is None:
        return {
            "status": "pass",
            "flags": ["not_judged"],
            "reason": f"{median:g} GB/s with right data; no expected figure",
        }
    return _passed(result, values, limits)


def _passed(result: dict[str, Any], values: list[float], limits: dict[str, Any]) -> dict[str, Any]:
    """A pass with what should be said of it."""
    median, expected = result["median_gbps"], limits["expected_gbps"]
    text = f"{median:g} GB/s, {result['percent']:g} % of {expected:g} GB/s"
    flags = []
    if limits["modelled"] and median > expected * limits["over"]:
        flags.append("over_limit")
        text = f"{median:g} GB/s is {result['percent']:g} % of the {expected:g} GB/s that the hardware should allow"
    dips = [value for value in values if value < median * (1 - DIP)]
    if dips and len(values) >= 5:
        flags.append("dips")
        text += f"; {len(dips)} of {len(values)} launches were slower, down to {min(dips):g} GB/s"
    return {"status": "pass", "flags": flags, "reason": text}


def outliers(values: dict[str, float]) -> list[str]:
    """Nodes slower than the fleet by a modified z-score over 3.5 and by at least 2 %. Needs five nodes."""
    if len(values) < 5:
        return []
    centre = statistics.median(values.values())
    spread = statistics.median(abs(value - centre) for value in values.values())
    limit = centre - max(OUTLIER * spread / 0.6745, 0.02 * centre)
    return sorted(name for name, value in values.items() if value < limit)
