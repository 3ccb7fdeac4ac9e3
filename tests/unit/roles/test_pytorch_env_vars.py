"""Which environment of pytorch_env is verified and used by the examples, by what the locks hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[3]
LOCKS = {"torch": "torch==2.9.1+cpu", "tf": "tensorflow-cpu==2.21.0", "jax": "jax==0.8.1", "plain": "pygments==2.19.2"}
ASKED = ("verified", "torch", "others")


def choice(folder: Path, environments: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    """The role's variables for these environments."""
    asked = ", ".join(f"'{name}': __pytorch_env_{name}" for name in ASKED)
    book = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(PROJECT / f"roles/pytorch_env/{part}/main.yml") for part in ("defaults", "vars")],
        "tasks": [
            {"ansible.builtin.copy": {"content": f"{{{{ {{{asked}}} | to_json }}}}", "dest": str(folder / "said")}}
        ],
    }
    (folder / "play.yml").write_text(json.dumps([book]), encoding="utf-8")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    own = {"ansible_python_interpreter": sys.executable, "pytorch_env_environments": environments}
    extra = json.dumps({**own, **given})
    command = [program, "-i", "localhost,", "-e", extra, str(folder / "play.yml")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = json.loads((folder / "said").read_text(encoding="utf-8"))
    return said


def environments(folder: Path, *names: str) -> list[dict[str, Any]]:
    found = []
    for name in names:
        (folder / f"{name}.lock").write_text(f"{LOCKS[name]} --hash=sha256:{'0' * 64}\n", encoding="utf-8")
        found.append({"name": name, "lock_file": str(folder / f"{name}.lock")})
    return found


@pytest.mark.parametrize(
    ("names", "given", "verified", "torch", "others"),
    [
        (["torch"], {}, "torch", "2.9.1+cpu", []),
        (["tf"], {}, "", "", ["tf: tensorflow 2.21.0"]),
        (["tf", "torch"], {}, "torch", "2.9.1+cpu", ["tf: tensorflow 2.21.0"]),
        (["plain", "torch", "jax"], {"pytorch_env_default": "plain"}, "torch", "2.9.1+cpu", ["jax: jax 0.8.1"]),
        (["plain"], {}, "", "", []),
        ([], {}, "", "", []),
    ],
)
def test_the_distributed_run_is_of_an_environment_with_pytorch(
    tmp_path: Path, names: list[str], given: dict[str, Any], verified: str, torch: str, others: list[str]
) -> None:
    said = choice(tmp_path, environments(tmp_path, *names), **given)
    assert (said["verified"], said["torch"]) == (verified, torch)
    assert [f"{one['name']}: {one['framework']} {one['version']}" for one in said["others"]] == others


def test_a_variant_that_is_still_to_be_chosen_counts_as_pytorch(tmp_path: Path) -> None:
    waiting = [{"name": "torch", "lock_files": {"cu130": "cu130.lock"}}]
    choices = {"torch": {"variant": "", "waits": True}}
    assert choice(tmp_path, waiting, __pytorch_env_choices=choices)["verified"] == "torch"
