# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute mode, power limit, ECC and MIG layout of GPUs: compared with what is wanted, set, and read back. Private.

Everything is asked and set through nvidia-smi. What is lost at a reboot (compute mode, power limit, MIG instances) the
boot unit sets again with this very code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Runs nvidia-smi with these words: exit code and output.
Run = Callable[[list[str]], tuple[int, str]]
FIELDS: tuple[str, ...] = ("index", "uuid", "compute_mode", "power.limit", "ecc.mode.current", "ecc.mode.pending")
FIELDS += ("mig.mode.current", "mig.mode.pending")
COMPUTE_MODES = {"default": "Default", "exclusive_process": "Exclusive_Process", "prohibited": "Prohibited"}
PROFILE = re.compile(r"\dg\.\d+gb(\+[a-z.]+|-[a-z]+)?")


CLEAR = ("-dci", "-dgi")


class Failed(Exception):
    """nvidia-smi did not do what it was asked; the message is its own."""


def problems(wanted: dict[str, Any]) -> list[str]:
    """What cannot be meant, as sentences with the variable's name."""
    found = []
    if wanted["compute_mode"] not in ("", *COMPUTE_MODES):
        found.append(
            f"nvidia_driver_compute_mode is '{wanted['compute_mode']}', expected one of {', '.join(COMPUTE_MODES)}"
        )
    if wanted["ecc"] not in ("", "enabled", "disabled"):
        found.append(f"nvidia_driver_ecc is '{wanted['ecc']}', expected enabled or disabled")
    if wanted["power_limit_w"] < 0:
        found.append(f"nvidia_driver_power_limit_w is {wanted['power_limit_w']}, expected watts, or 0 to leave it")
    for gpu, profiles in wanted["mig_layout"].items():
        if str(gpu) != "all" and not str(gpu).isdigit():
            found.append(f"nvidia_driver_mig_layout has the key '{gpu}', expected the index of a GPU, or all")
        bad = [str(profile) for profile in profiles if not PROFILE.fullmatch(str(profile))]
        if bad:
            found.append(
                f"nvidia_driver_mig_layout has the profile {', '.join(bad)}, expected names such as 3g.40gb, 1g.10gb+me"
            )
    return found


def ask(run: Run, *words: str) -> str:
    code, said = run(list(words))
    if code and not (words[-1] in CLEAR and "Not Found" in said):
        raise Failed(f"nvidia-smi {' '.join(words)}: {' '.join(said.split()) or f'exit code {code}'}")
    return said


def look(run: Run) -> list[dict[str, str]]:
    """One dictionary a GPU, by the names of FIELDS."""
    answer = ask(run, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
    rows = [[part.strip() for part in line.split(",")] for line in answer.splitlines() if line.strip()]
    return [dict(zip(FIELDS, row)) for row in rows if len(row) == len(FIELDS)]


def layouts(run: Run) -> dict[str, list[str]]:
    """Profiles of the MIG devices of each GPU, sorted, from nvidia-smi -L."""
    found: dict[str, list[str]] = {}
    gpu = ""
    for line in ask(run, "-L").splitlines():
        head = re.match(r"GPU (\d+):", line)
        device = re.match(r"\s+MIG (\S+)\s+Device", line)
        if head:
            gpu = head[1]
            found[gpu] = []
        elif device and gpu:
            found[gpu].append(device[1])
    return {index: sorted(profiles) for index, profiles in found.items()}


def _mig_wanted(wanted: dict[str, Any], index: str) -> list[str] | None:
    layout = {str(gpu): profiles for gpu, profiles in wanted["mig_layout"].items()}
    chosen = layout.get(index, layout.get("all"))
    return None if chosen is None else sorted(map(str, chosen))


def steps(wanted: dict[str, Any], gpu: dict[str, str], layout: list[str]) -> list[tuple[str, list[list[str]], bool]]:
    """What differs on one GPU: a sentence, the calls that change it, and whether they would disturb programs."""
    index, found = gpu["index"], []
    mode = COMPUTE_MODES.get(wanted["compute_mode"], "")
    if mode and gpu["compute_mode"] != mode:
        found.append((f"compute mode {gpu['compute_mode']} -> {mode}", [["-i", index, "-c", mode.upper()]], False))
    limit = float(wanted["power_limit_w"] or 0)
    if limit and gpu["power.limit"] != f"{limit:.2f}":
        found.append(
            (f"power limit {gpu['power.limit']} -> {limit:.2f} W", [["-i", index, "-pl", f"{limit:g}"]], False)
        )
    ecc = wanted["ecc"].capitalize()
    if ecc and gpu["ecc.mode.pending"] != ecc:
        calls = [["-i", index, "-e", "1" if ecc == "Enabled" else "0"]]
        found.append((f"ECC {gpu['ecc.mode.pending']} -> {ecc}", calls, False))
    profiles = _mig_wanted(wanted, index)
    if profiles is None:
        return found
    mig = "Enabled" if profiles else "Disabled"
    # GPU instances without a compute instance are no MIG devices, and take room all the same.
    clear = [["mig", "-i", index, words] for words in CLEAR] if gpu["mig.mode.current"] == "Enabled" else []
    if gpu["mig.mode.pending"] != mig:
        calls = [*clear, ["-i", index, "-mig", "1" if profiles else "0"]]
        found.append((f"MIG mode {gpu['mig.mode.pending']} -> {mig}", calls, True))
    elif profiles and gpu["mig.mode.current"] == mig and layout != profiles:
        # Large ones first: small ones could lie in their place.
        ordered = sorted(profiles, reverse=True)
        calls = [*clear, ["mig", "-i", index, "-cgi", ",".join(ordered), "-C"]]
        found.append((f"MIG devices {', '.join(layout) or 'none'} -> {', '.join(profiles)}", calls, True))
    return found


def waiting(gpu: dict[str, str]) -> list[str]:
    """What takes effect at a reset or reboot only."""
    kinds = (("ecc.mode", "ECC"), ("mig.mode", "MIG mode"))
    return [
        f"GPU {gpu['index']}: {name} is {gpu[f'{kind}.current']}, {gpu[f'{kind}.pending']} after a reboot"
        for kind, name in kinds
        if gpu[f"{kind}.current"] != gpu[f"{kind}.pending"]
    ]


def settle(wanted: dict[str, Any], run: Run, check: bool = False) -> dict[str, list[str]]:
    """Bring all GPUs to what is wanted: {changed, waiting, wrong}, sentences of one GPU each.

    Two rounds, since MIG devices can be made only when the mode is on. Everything is read back: what is set and does
    not show is wrong.
    """
    changed: list[str] = []
    wrong: list[str] = []
    for _unused in range(1 if check else 2):
        apps = ask(run, "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
        busy = [match[1] for match in re.finditer(r"(?m)^(\S+), *\d+ *$", apps)]
        layout = layouts(run) if wanted["mig_layout"] else {}
        for gpu in look(run):
            for sentence, calls, disturbs in steps(wanted, gpu, layout.get(gpu["index"], [])):
                line = f"GPU {gpu['index']}: {sentence}"
                if disturbs and gpu["uuid"] in busy:
                    wrong.append(f"{line}: programs use it; drain the host first")
                    continue
                if not check:
                    try:
                        for call in calls:
                            ask(run, *call)
                    except Failed as error:
                        wrong.append(f"{line}: {error}")
                        continue
                if line not in changed:
                    changed.append(line)
        if wrong:
            break
    now = look(run)
    if not check and not wrong:
        layout = layouts(run) if wanted["mig_layout"] else {}
        for gpu in now:
            wrong += [
                f"GPU {gpu['index']}: {sentence}: set, but it does not show"
                for sentence, _calls, _disturbs in steps(wanted, gpu, layout.get(gpu["index"], []))
            ]
    return {"changed": changed, "waiting": [line for gpu in now for line in waiting(gpu)], "wrong": wrong}
