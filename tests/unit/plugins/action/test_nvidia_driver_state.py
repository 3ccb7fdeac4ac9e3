# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real runs of nvidia_driver_state and nvidia_driver_verify on this machine; dpkg and apt answer as told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
VERSION = "535.309.01-0+deb12u1"
NAMES = ("libcuda1", "libnvidia-ml1", "nvidia-smi")
GPU = {"state": "no_gpu", "reason": "", "pci_count": 0, "driver": {"version": None, "loaded": None}}
SETTINGS = {
    **{"source": "distribution", "version": "535", "repository": "", "repository_checksum": ""},
    **{"kernel_modules": False, "flavour": "auto", "extra_packages": [], "downgrade_allowed": False, "services": []},
    **{"mok_key": "", "mok_certificate": "", "pinned": True, "reboot_allowed": False},
    "gpu_settings": {"compute_mode": "default", "power_limit_w": 0.0, "ecc": "", "mig_layout": {}},
}
TOOLS = {
    "dpkg-query": 'cat {folder}/$(case "$*" in *dpkg*) echo probed;; *) echo present;; esac)',
    "apt-cache": 'for name; do echo "$name | {version} | http://mirror/debian bookworm/non-free amd64 Packages"; done',
    "apt-get": "exit 0",
    "systemctl": "exit 1",
}


def machine(folder: Path, state: str) -> None:
    """Programs in a folder of PATH; all packages have one state."""
    lines = [f"{state}|{name}|{VERSION}\n" for name in NAMES]
    (folder / "present").write_text("".join(lines))
    (folder / "probed").write_text("".join(f"dpkg {line}" for line in lines))
    for name, text in TOOLS.items():
        tool = folder / name
        tool.write_text("#!/bin/sh\n" + text.format(folder=folder, version=VERSION) + "\n")
        tool.chmod(0o755)


def run(folder: Path, *files: dict[str, Any], verify: bool = False, **changed: Any) -> tuple[int, str, dict[str, Any]]:
    """Exit code, words, and what the module returned."""
    asked = {"settings": {**SETTINGS, **changed}, "distribution": "Debian", "kernel": "6.1.0-57-amd64", "gpu": GPU}
    tasks: list[dict[str, Any]] = [
        {"gpuops.cluster.nvidia_driver_state": {**asked, "packages": ["*nvidia*"], "files": files}, "register": "plan"},
        {"ansible.builtin.copy": {"content": "{{ plan | to_json }}", "dest": str(folder / "plan.json")}},
    ]
    if verify:
        checked = {"name": "{{ inventory_hostname }}", "plan": "{{ plan }}", "gpu": GPU, "packages": ["*nvidia*"]}
        tasks.append({"gpuops.cluster.nvidia_driver_verify": checked})
    path = f"{folder}:{os.environ['PATH']}"
    book = {"hosts": "all", "gather_facts": False, "environment": {"PATH": path}, "tasks": tasks}
    (folder / "book.yml").write_text(yaml.safe_dump([book]), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "n7,", "-c", "local"]
    done = subprocess.run(
        [*command, "-e", json.dumps({"ansible_python_interpreter": sys.executable}), str(folder / "book.yml")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    kept = folder / "plan.json"
    return done.returncode, done.stdout + done.stderr, json.loads(kept.read_text()) if kept.exists() else {}


def test_files_are_compared_with_what_the_control_node_has(tmp_path: Path) -> None:
    machine(tmp_path, "hi ")
    for name in ("same", "there"):
        (tmp_path / name).write_text("text\n")
        (tmp_path / name).chmod(0o644)
    path, there = str(tmp_path / "there"), {"path": str(tmp_path / "there")}
    code, said, plan = run(
        tmp_path,
        {**there, "content": "text\n"},
        {"path": str(tmp_path / "same"), "state": "seen"},
        {"path": str(tmp_path / "none"), "state": "absent"},
    )
    assert code == 0, said
    assert plan["packages"] == dict.fromkeys(NAMES, VERSION) and plan["release"] == "535.309.01"
    assert plan["differs"] == ["gpuops-gpu-settings is not enabled"]
    assert plan["files"][str(tmp_path / "same")].startswith("0644 ") and path not in plan["files"]
    assert (plan["gpus_set"], plan["reboot"], plan["waiting"]) == (False, [], [])
    for other in (
        {**there, "content": "other\n"},
        {**there, "content": "text\n", "mode": "0600"},
        {**there, "state": "absent"},
        {**there, "state": "directory"},
        {**there, "src": str(tmp_path / "no-such-key")},
        {**there, "program": str(ROOT / "roles/nvidia_driver/files/gpu_settings.py"), "mode": "0755"},
    ):
        code, said, plan = run(tmp_path, other)
        assert code == 0 and path in plan["differs"], (other, said)
    assert path not in run(tmp_path, {**there, "src": str(tmp_path / "same")})[2]["differs"]


def test_a_refusal_names_the_host_and_all_that_is_wrong(tmp_path: Path) -> None:
    machine(tmp_path, "hi ")
    code, said, plan = run(tmp_path, version="five", mok_key="/no/such/key")
    assert code != 0 and not plan
    assert "n7: nvidia_driver_version is 'five'" in said
    (tmp_path / "apt-cache").write_text("#!/bin/sh\necho 'E: The list of sources could not be read.' >&2\nexit 100\n")
    code, said, plan = run(tmp_path)
    assert code != 0 and "n7: apt-cache madison says: E: The list of sources could not be read." in said


def test_packages_that_are_not_there_are_found_out_afterwards(tmp_path: Path) -> None:
    machine(tmp_path, "hi ")
    code, said, _plan = run(tmp_path, verify=True)
    assert code == 0, said
    machine(tmp_path, "un ")
    code, said, plan = run(tmp_path, verify=True)
    assert code != 0 and plan["change"] is True
    assert "n7: not installed at 535.309.01: libcuda1, libnvidia-ml1, nvidia-smi" in said
