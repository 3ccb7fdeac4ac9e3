"""The audit of real hosts: one with a sick GPU, one made different, one that is down; nothing on them changes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
DOWN = {
    "gpu_nodes": {
        "hosts": {
            "down": {
                "ansible_host": "127.0.0.1",
                "ansible_port": 9,
                "ansible_ssh_common_args": "-o ConnectTimeout=2 -o StrictHostKeyChecking=no",
            }
        }
    }
}


class Audit:
    """One run of the playbook: exit code, output and report."""

    def __init__(self, folder: Path, *arguments: str, inventory: dict[str, Any] | None = None) -> None:
        command = ["ansible-playbook", "playbooks/audit.yml", "-i", "inventories/lab"]
        if inventory is not None:
            (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
            command += ["-i", str(folder / "hosts.json")]
        done = subprocess.run(
            [*command, "-e", f"audit_report_dir={folder}", *arguments],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
        )
        self.code, self.output = done.returncode, done.stdout + done.stderr
        written = folder / "audit.json"
        self.report: dict[str, Any] = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}

    def item(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.report["kinds"][0]["items"][name]
        return found

    def problems(self) -> list[tuple[str, str, list[str]]]:
        return [(one["code"], one["device"], one["hosts"]) for one in self.report["health"]]


def fault(node: str, *faults: str) -> None:
    command = [str(PROJECT / "run"), "lab", "fault", "--name", os.environ.get("GPUOPS_LAB_NAME", "lab"), node, *faults]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"))


def test_the_sick_gpu_and_the_odd_host_are_named(audit: Audit) -> None:
    assert audit.code == 0, audit.output
    assert audit.problems() == [("ecc_uncorrectable", "GPU 3", ["n2"])]
    assert audit.item("slurm")["usual"] == "none"
    assert [group["hosts"] for group in audit.item("slurm")["differing"]] == [["n3"]]
    assert audit.report["counts"] == {
        "hosts": 4, "answered": 4, "absent": 0, "unhealthy": 1, "drift": 1, "differing": 1,
    }  # fmt: skip
    assert "audit: 4 hosts, 1 with problems, 1 item differs on 1 host" in audit.output
    assert "problem  n2  ecc_uncorrectable GPU 3" in audit.output


def test_what_hosts_have_is_what_they_say(audit: Audit, n1: Any) -> None:
    assert audit.item("kernel")["usual"] == n1.check_output("uname -r")
    driver = n1.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u")
    assert audit.item("driver_installed")["usual"] == driver
    assert audit.item("driver_loaded")["usual"].split() == [driver, "proprietary"]
    assert audit.item("gpus")["usual"] == "8 x NVIDIA H100 80GB HBM3"
    assert audit.item("os")["usual"].endswith(n1.file("/etc/debian_version").content_string.strip())


def test_the_controller_is_no_gpu_node(audit: Audit) -> None:
    assert [(kind["kind"], kind["hosts"]) for kind in audit.report["kinds"]] == [
        ("gpu_nodes", 3),
        ("slurm_controllers", 1),
    ]
    assert audit.report["hosts"]["ctl"]["versions"]["gpus"] == "none"


def test_check_mode_says_the_same(audit: Audit, tmp_path: Path) -> None:
    checked = Audit(tmp_path, "--check")
    assert checked.code == 0, checked.output
    assert {**checked.report, "made": ""} == {**audit.report, "made": ""}
    assert (tmp_path / "audit.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_nothing_on_a_host_changes(tmp_path: Path, n1: Any) -> None:
    n1.check_output("touch /tmp/before")
    done = Audit(tmp_path)
    assert re.findall(r"changed=(\d+)", done.output) == ["0"] * 4
    changed = n1.check_output(
        "find / -xdev -type f -newer /tmp/before -not -path '/proc/*' -not -path '/run/*' -not -path '/var/log/*'"
    )
    assert changed == ""


def test_a_host_that_is_down_is_listed_and_the_others_audited(tmp_path: Path) -> None:
    done = Audit(tmp_path, inventory=DOWN)
    assert done.code == 0, done.output
    assert [(one["host"], one["unreachable"]) for one in done.report["absent"]] == [("down", True)]
    assert "Connection refused" in done.report["absent"][0]["reason"]
    assert done.report["counts"]["answered"] == 4
    assert re.search(r"absent +down ", done.output)


def test_a_host_without_python_is_listed(tmp_path: Path) -> None:
    done = Audit(tmp_path, "-l", "n1", "-e", '{"ansible_python_interpreter": "/opt/none/python3"}')
    assert done.code == 0, done.output
    assert [(one["host"], one["unreachable"]) for one in done.report["absent"]] == [("n1", False)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-e", "audit_fail_on=none"], 0),
        (["-e", "audit_fail_on="], 0),
        (["-e", "audit_fail_on=drift"], 2),
        (["-e", "audit_fail_on=health"], 2),
        (["-e", '{"audit_fail_on": ["drift", "health"]}'], 2),
        (["-e", "audit_fail_on=drift,health", "-l", "n1"], 0),
        (["-e", "audit_fail_on=drift", "-e", "audit_ignore=slurm"], 0),
        (["-e", "audit_fail_on=health", "-e", '{"audit_ignore": ["ecc_uncorrectable GPU 3"]}'], 0),
    ],
)
def test_the_exit_code_is_what_the_user_asked_for(tmp_path: Path, arguments: list[str], code: int) -> None:
    done = Audit(tmp_path, *arguments)
    assert done.code == code, done.output
    assert (tmp_path / "audit.html").exists()


def test_wrong_settings_are_refused_before_a_host_is_looked_at(tmp_path: Path) -> None:
    done = Audit(tmp_path, "-e", "audit_fail_on=drfit", "-e", "audit_ignore=kernle")
    assert done.code == 2
    assert "'drfit' is neither drift nor health" in done.output
    assert "'kernle' is neither an item" in done.output
    assert not done.report


def test_a_driver_that_hangs_costs_no_more_than_the_time_limit(tmp_path: Path) -> None:
    fault("n1", "hang=60")
    try:
        done = Audit(tmp_path, "-e", "audit_timeout=12")
    finally:
        fault("n1", "--clear")
    assert done.code == 0, done.output
    assert ("no_answer", "", ["n1"]) in done.problems()
    assert done.item("gpus")["unknown"] == ["n1"]
