"""What a host says that waits for a controller which failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def test_a_host_whose_controller_failed_says_so(tmp_path: Path) -> None:
    book = {
        "hosts": "ctl,n1",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(PROJECT / "roles/slurm/vars/main.yml")],
        "vars": {"__slurm_lead": "ctl"},
        "tasks": [
            {"ansible.builtin.fail": {"msg": "no room"}, "when": "inventory_hostname == 'ctl'"},
            {"ansible.builtin.debug": {"msg": "on it goes"}, "when": "__slurm_answer.version | length > 0"},
        ],
    }
    (tmp_path / "play.yml").write_text(json.dumps([book]), encoding="utf-8")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", "ctl,n1,", str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "n1: Slurm is left as it is here, since ctl failed before it had configured the cluster" in done.stdout
    assert "on it goes" not in done.stdout
