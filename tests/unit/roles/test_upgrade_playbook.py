"""Parts of playbooks/upgrade.yml that need no cluster: a host without Slurm, refusals, and what the summary says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[3]
# Nothing is changed, on this machine of all machines; what is asked is asked all the same.
WISH = {
    "upgrade_roles": [],
    "upgrade_always": True,
    "upgrade_gate": False,
    "ansible_python_interpreter": sys.executable,
}
TASKS = PROJECT / "playbooks/tasks"


def play(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)


def task(file: str, name: str) -> dict[str, Any]:
    """One task of the playbook, from the block that it is in."""
    tasks = yaml.safe_load((TASKS / file).read_text(encoding="utf-8"))
    inner = [step for outer in tasks for step in outer.get("block", [outer])]
    (found,) = (step for step in inner if step["name"] == name)
    return dict(found)


def here(folder: Path, *steps: dict[str, Any], **variables: Any) -> str:
    """Tasks on this machine, without facts of it; what was printed."""
    roles = ["nvidia_driver", "cuda_toolkit"]
    book = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"__upgrade_roles": roles, **variables},
        "tasks": steps,
    }
    (folder / "play.yml").write_text(json.dumps([book]), encoding="utf-8")
    done = play("-i", "localhost,", "-c", "local", str(folder / "play.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def facts(**values: Any) -> dict[str, Any]:
    return {"ansible.builtin.set_fact": {**values, "cacheable": True}}


def test_without_slurm_a_host_is_drained_by_nobody(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts"
    inventory.write_text("[gpu_nodes]\nhere ansible_connection=local\n")
    done = play("playbooks/upgrade.yml", "--check", "-i", str(inventory), "-e", json.dumps(WISH))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tasks/upgrade_node.yml for here" in done.stdout
    assert "skipped: upgrade: not measured" in done.stdout


def test_what_was_rebooted_is_not_said_to_wait(tmp_path: Path) -> None:
    report = {
        "role": "nvidia_driver",
        "reboot_required": ["module"],
        "skipped": ["not judged before the reboot", "else"],
    }
    other = {"role": "host_tuning", "reboot_required": ["kernel parameter"]}
    clear = task("upgrade_node.yml", "Node | Nothing waits for a reboot any more")
    said = here(
        tmp_path,
        {"gpuops.cluster.report": other},
        {"gpuops.cluster.report": report},
        clear,
        upgrade_waits=["module"],
    )
    assert "reboot required: host_tuning: kernel parameter" in said, "no role of this run, so nobody asked"
    assert "nvidia_driver: module" not in said
    assert "before the reboot" not in said
    assert "skipped: nvidia_driver: else" in said


# Loaded, planned (empty: the repository is not there yet), named by the user, consent; whether that is refused.
REBOOTS = [
    ("535.261.03", "535.309.01", "535", False, True),
    ("535.261.03", "535.309.01", "535", True, False),
    ("535.261.03", "535.261.03", "535", False, False),
    (None, "535.309.01", "535", False, False),
    ("535.261.03", "", "580", False, True),
    ("535.261.03", "", "535", False, False),
    ("535.261.03", "", "", False, False),
]


def test_a_reboot_that_is_foreseen_needs_consent(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = []
    for loaded, release, version, allowed, refused in REBOOTS:
        steps += [
            facts(gpu={"driver": {"loaded": loaded}}),
            {
                "ansible.builtin.set_fact": {
                    "site_refusals": [],
                    "__nvidia_driver_plan": {"release": release},
                    "nvidia_driver_version": version,
                    "__upgrade_reboot": allowed,
                }
            },
            task("upgrade_plan.yml", "Plan | See whether the driver's change takes a reboot"),
            {
                "ansible.builtin.assert": {
                    "that": [f"site_refusals | length == {int(refused)}"],
                    "fail_msg": f"{loaded} to {release} ({version}): {{{{ site_refusals }}}}",
                }
            },
        ]
    here(tmp_path, *steps)
