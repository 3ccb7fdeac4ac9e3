"""Real runs of cuda_toolkit_state and cuda_toolkit_verify on this machine; dpkg answers as told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
PLAN = "{{ plan | to_json }}"
SETTINGS = {
    **{"version": "13.0", "source": "network", "local_repository": "", "local_repository_checksum": ""},
    **{"keep_local_repository": False, "network_keyring": "", "network_keyring_checksum": "sha256:" + "a" * 64},
    **{"default": False, "architectures": [], "driver": "", "run_kernel": False},
}
HOST = {"distribution": "Debian", "release": "12", "machine": "x86_64", "driver": "", "pci_count": 0, "gpus": []}
INSTALLED = ["ii |g++|4:12.2.0-3", "ii |cuda-keyring|1.1-1", "hi |cuda-toolkit-13-0|13.0.2-1"]
TOOLS = {
    "dpkg-query": 'case "$*" in *g++*) cat {folder}/all;; *--show*) grep 13-0 {folder}/all;; *) exit 1;; esac',
    # As if alternatives managed the link that this machine may have.
    "update-alternatives": "echo Value: {link}; echo Alternative: {link}",
}


def machine(folder: Path, packages: list[str]) -> None:
    """Programs in a folder of PATH."""
    (folder / "all").write_text("".join(f"{line}\n" for line in packages))
    for name, text in TOOLS.items():
        (folder / name).write_text(
            "#!/bin/sh\n" + text.format(folder=folder, link=os.path.realpath("/usr/local/cuda")) + "\n"
        )
        (folder / name).chmod(0o755)


def run(folder: Path, *tasks: dict[str, Any], check: bool = False) -> tuple[int, str, dict[str, Any]]:
    """Exit code, words, and what was decided."""
    keep = {"ansible.builtin.copy": {"content": PLAN, "dest": str(folder / "plan.json")}, "check_mode": False}
    path = f"{folder}:{os.environ['PATH']}"
    book = {"hosts": "all", "gather_facts": False, "environment": {"PATH": path}, "tasks": [tasks[0], keep, *tasks[1:]]}
    (folder / "book.yml").write_text(yaml.safe_dump([book]), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "n7,", "-c", "local"]
    done = subprocess.run(
        [*command, *["--check"][: int(check)], "-e", f"ansible_python_interpreter={sys.executable}", "book.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )
    kept = folder / "plan.json"
    return done.returncode, done.stdout + done.stderr, json.loads(kept.read_text()) if kept.exists() else {}


def state(*files: dict[str, str], host: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    given = {"settings": {**SETTINGS, **changed}, "host": {**HOST, **(host or {})}, "files": files}
    return {"gpuops.cluster.cuda_toolkit_state": given, "register": "plan"}


def verify(nvcc: Path) -> dict[str, Any]:
    given = {"name": "{{ inventory_hostname }}", "nvcc": str(nvcc), "package": "cuda-toolkit-13-0"}
    return {"gpuops.cluster.cuda_toolkit_verify": {**given, "release": "13.0", "architectures": ["90"]}}


def test_what_differs_comes_with_the_plan(tmp_path: Path) -> None:
    machine(tmp_path, INSTALLED)
    there = tmp_path / "there"
    there.write_text("text\n")
    there.chmod(0o644)
    code, said, plan = run(tmp_path, state({"path": str(there), "content": "text\n"}))
    assert code == 0, said
    assert (plan["current"], plan["differs"], plan["interrupted"]) == (True, [], False)
    assert plan["nvcc"] == "/usr/local/cuda-13.0/bin/nvcc"
    for files in ([{"path": str(there), "content": "other\n"}], [{"path": f"{there}!", "content": "text\n"}]):
        code, said, plan = run(tmp_path, state(*files))
        assert code == 0, said
        assert plan["differs"] == [files[0]["path"]]
    machine(tmp_path, INSTALLED[:2])
    assert run(tmp_path, state())[2]["differs"] == ["cuda-toolkit-13-0 is not installed"]


def test_a_refusal_names_the_host_and_all_that_is_wrong(tmp_path: Path) -> None:
    machine(tmp_path, INSTALLED)
    code, said, plan = run(tmp_path, state(host={"distribution": "Arch", "release": "1"}, source="local_repository"))
    assert code != 0 and not plan
    assert "n7: NVIDIA has no CUDA repository for Arch 1 on x86_64; cuda_toolkit_local_repository is empty" in said
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\necho 'dpkg-query: error: no memory' >&2\nexit 2\n")
    code, said, plan = run(tmp_path, state())
    assert code != 0 and "n7: dpkg-query --show says: dpkg-query: error: no memory" in said


def test_a_compiler_that_is_not_there_is_missed_in_a_real_run_alone(tmp_path: Path) -> None:
    machine(tmp_path, INSTALLED)
    code, said, _plan = run(tmp_path, state(), verify(tmp_path / "nvcc"))
    assert code != 0
    assert f"n7: there is no {tmp_path}/nvcc, though cuda-toolkit-13-0 should have brought it" in said
    code, said, _plan = run(tmp_path, state(), verify(tmp_path / "nvcc"), check=True)
    assert code == 0, said
