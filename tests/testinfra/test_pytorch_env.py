"""Environments of the lab's nodes: what was locked is what runs, building another never harms the one in use."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = "/opt/gpuops/envs"
LINKS = ["/srv/gpuops-lab/wheels", "/srv/gpuops-lab/wheels/tools"]
PROJECT = Path(__file__).resolve().parents[2]
Module = Callable[..., dict[str, Any]]


def test_the_locked_torch_runs_on_every_node(connect: Callable[[str], Any], lock: dict[str, str]) -> None:
    wanted = lock["torch"].split("==")[1].split()[0]
    stamps = set()
    for name in ("n1", "n2"):
        host = connect(name)
        said = host.check_output(f"{ROOT}/torch/bin/python -c 'import torch; print(torch.__version__)'")
        assert said.split("+")[0] == wanted.split("+")[0]
        stamps.add(json.loads(host.file(f"{ROOT}/torch/.gpuops.json").content_string)["lock_sha256"])
    assert len(stamps) == 1


def test_a_login_shell_finds_torchrun_and_keeps_the_system_s_python(n1: Any) -> None:
    assert n1.check_output("bash -lc 'command -v torchrun'") == f"{ROOT}/torch/bin/torchrun"
    assert n1.check_output("bash -lc 'command -v python3'") == "/usr/bin/python3"


def test_a_sum_over_four_ranks_is_right(n1: Any) -> None:
    said = n1.check_output(
        f"{ROOT}/torch/bin/torchrun --standalone --nproc-per-node=4 /opt/gpuops/checks/allreduce_check.py"
    )
    result = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert result["ranks"] == 4
    assert result["sum_is_right"] is True
    assert result["backend"] == "gloo"


@pytest.fixture(scope="module")
def build(module: Module) -> Module:
    def run(lines: list[str], **more: Any) -> dict[str, Any]:
        places = {"root": "/opt/test-envs", "find_links": ["/srv/gpuops-lab/wheels"], "no_index": True}
        name = "gpuops.cluster.python_environment"
        return module("n1", name, name="small", lock="\n".join(lines) + "\n", **{**places, **more})

    return run


def test_upgrade_builds_beside_and_going_back_builds_nothing(n1: Any, build: Module, lock: dict[str, str]) -> None:
    old, new = [lock["filelock"]], [lock["filelock"], lock["fsspec"]]
    planned = build(old, check=True)
    assert planned["changed"] is True
    assert not n1.file("/opt/test-envs").exists

    first = build(old)
    assert first["changed"] is True
    assert build(old)["changed"] is False

    second = build(new)
    assert second["path"] != first["path"]
    assert n1.file("/opt/test-envs/small").linked_to == second["path"]
    n1.check_output(f"{first['path']}/bin/python -c 'import filelock'")
    n1.check_output("/opt/test-envs/small/bin/python -c 'import fsspec'")

    inode = n1.check_output(f"stat -c %i {first['path']}/bin/python")
    back = build(old)
    assert back["changed"] is True
    assert n1.file("/opt/test-envs/small").linked_to == first["path"]
    assert n1.check_output(f"stat -c %i {first['path']}/bin/python") == inode


def test_a_wrong_hash_leaves_everything_as_it_was(n1: Any, build: Module, lock: dict[str, str]) -> None:
    build([lock["filelock"]])
    before = n1.check_output("ls -la /opt/test-envs")
    name, digest = lock["fsspec"].split(" --hash=sha256:")
    wrong = build([f"{name} --hash=sha256:{digest[::-1]}"])
    assert wrong["failed"] is True
    assert "fsspec" in wrong["msg"]
    assert "HASHES" in wrong["msg"] or "hash" in wrong["msg"]
    assert n1.check_output("ls -la /opt/test-envs | grep -v ' \\.$'") == "\n".join(
        line for line in before.splitlines() if not line.endswith(" .")
    )


def test_a_half_built_environment_is_built_again(n1: Any, build: Module, lock: dict[str, str]) -> None:
    path = build([lock["filelock"]])["path"]
    n1.check_output(f"rm {path}/.gpuops.json")
    assert build([lock["filelock"]])["changed"] is True
    n1.check_output("/opt/test-envs/small/bin/python -c 'import filelock'")


def test_old_ones_are_pruned_by_count_and_a_lock_without_hash_is_refused(
    n1: Any, build: Module, lock: dict[str, str]
) -> None:
    build([lock["filelock"]])
    pruned = build([lock["sympy"], lock["mpmath"]], keep=0)
    assert pruned["removed"]
    left = n1.check_output("ls /opt/test-envs").split()
    assert sorted(left) == ["small", Path(pruned["path"]).name]
    refused = build(["filelock==1.0"])
    assert refused["failed"] is True
    assert "has no --hash" in refused["msg"]


def test_a_broken_wheel_and_a_full_disk_say_so_and_leave_nothing(n1: Any, build: Module, lock: dict[str, str]) -> None:
    name = lock["filelock"].split(" --hash")[0]
    wheel = f"/srv/broken-wheels/{name.replace('==', '-')}-py3-none-any.whl"
    n1.check_output(f"mkdir -p /srv/broken-wheels && echo 'no zip archive' > {wheel}")
    digest = n1.check_output(f"sha256sum {wheel}").split()[0]
    broken = build([f"{name} --hash=sha256:{digest}"], root="/opt/broken", find_links=["/srv/broken-wheels"])
    assert broken["failed"] is True
    assert Path(wheel).name in broken["msg"] or "filelock" in broken["msg"]
    assert n1.check_output("ls -A /opt/broken") == ""

    # Shared memory is a file system of its own; a file leaves less than numpy needs.
    n1.check_output("fallocate -l $(($(df --output=avail -B1 /dev/shm | tail -n 1) - 40000000)) /dev/shm/filler")
    full = build([lock["numpy"]], root="/dev/shm/envs")
    left = n1.check_output("ls -A /dev/shm/envs")
    n1.check_output("rm -r /dev/shm/filler /dev/shm/envs")
    assert full["failed"] is True
    assert "No space left on device" in full["msg"]
    assert left == ""


def test_another_python_is_refused_before_anything_is_built(n1: Any, build: Module, lock: dict[str, str]) -> None:
    wrong = build([lock["filelock"]], root="/opt/wrong", python_version="3.9")
    assert wrong["failed"] is True
    assert "/usr/bin/python3 (python) is Python 3.1" in wrong["msg"]
    assert "python_version wants 3.9" in wrong["msg"]
    missing = build([lock["filelock"]], root="/opt/wrong", python="/usr/bin/python3.99")
    assert "/usr/bin/python3.99 (python) does not run" in missing["msg"]
    assert not n1.file("/opt/wrong").exists


# Says that it runs, and imports only when it is told to.
LATE = """
import os, time, sys, markupsafe._speedups
open(sys.argv[1], "w").close()
while not os.path.exists("/srv/go"):
    time.sleep(0.1)
import filelock
print(filelock.__file__)
"""


def submit(ctl: Any, n1: Any, name: str) -> None:
    """A job on n1 in whatever environment is in use now; it runs when this returns."""
    job = f"/opt/test-envs/small/bin/python /srv/late.py /srv/{name}.started"
    ctl.check_output(f"cd / && sbatch -Q -w n1 -o /srv/{name}.out --mem=100 --wrap 'exec {job}'")
    n1.check_output(f"timeout 120 sh -c 'until [ -e /srv/{name}.started ]; do sleep 0.2; done'")


def said_by(n1: Any, name: str) -> str:
    n1.check_output(f"timeout 120 sh -c 'until [ -s /srv/{name}.out ]; do sleep 0.2; done'")
    return str(n1.file(f"/srv/{name}.out").content_string).strip()


def test_jobs_keep_their_environment_over_upgrade_rollback_and_pruning(
    ctl: Any, n1: Any, build: Module, lock: dict[str, str]
) -> None:
    """Jobs of Slurm that have not yet imported all that they will, started before and after an upgrade."""
    n1.check_output("rm -f /srv/go /srv/*.started /srv/*.out; cat > /srv/late.py << 'END'\n" + LATE + "END")

    two = [lock["markupsafe"], lock["filelock"]]
    three = [*two, lock["fsspec"]]
    old = build(three)["path"]
    submit(ctl, n1, "before")
    new = build(two)["path"]
    submit(ctl, n1, "after")
    pruned = build(three, keep=0)
    assert pruned["path"] == old, "gone back"
    assert new not in pruned["removed"], "a job runs in it"
    n1.check_output("touch /srv/go")
    assert said_by(n1, "before").startswith(f"{old}/lib/")
    assert said_by(n1, "after").startswith(f"{new}/lib/")
    submit(ctl, n1, "back")
    assert said_by(n1, "back").startswith(f"{old}/lib/")
    n1.check_output("timeout 60 sh -c 'while pgrep -f [l]ate.py > /dev/null; do sleep 0.2; done'")
    assert new in build(three, keep=0)["removed"]


def test_uv_makes_what_pip_makes(n1: Any, build: Module, lock: dict[str, str]) -> None:
    lines = [lock[name] for name in ("uv", "jinja2", "markupsafe")]
    by = {
        installer: build(lines, root=f"/opt/by-{installer}", installer=installer, find_links=LINKS)
        for installer in ("pip", "uv")
    }
    assert [by[installer]["failed"] for installer in by] == [False, False], by
    frozen = [n1.check_output(f"/opt/by-{installer}/small/bin/python -m pip freeze --all") for installer in by]
    assert frozen[0] == frozen[1]
    assert "markupsafe==" in frozen[0].lower()
    n1.check_output("/opt/by-uv/small/bin/python -c 'import jinja2, markupsafe._speedups'")
    assert set(n1.check_output("ls -A /opt/by-uv").split()) == {Path(by["uv"]["path"]).name, "small"}, (
        "no cache is left"
    )

    digest = lock["fsspec"].rpartition(":")[2]
    wrong = build(
        [lock["uv"], lock["fsspec"].replace(digest, digest[::-1])],
        root="/opt/by-uv",
        installer="uv",
        find_links=LINKS,
    )
    assert "Hash mismatch for `fsspec==" in wrong["msg"]
    assert n1.file("/opt/by-uv/small").linked_to == by["uv"]["path"]


def test_an_environment_that_was_moved_still_trains(n1: Any) -> None:
    """Links to the same files, so that nothing is copied; what is asked is where Python finds them."""
    n1.check_output("rm -rf /opt/elsewhere && cp -al $(readlink -f /opt/gpuops/envs/torch) /opt/elsewhere")
    n1.check_output("echo 'import torch, sys; print(sys.prefix, torch.__file__)' > /srv/where.py")
    said = n1.check_output("/opt/elsewhere/bin/torchrun --standalone --nproc-per-node=1 /srv/where.py")
    n1.check_output("rm -rf /opt/elsewhere")
    prefix, torch = said.split()
    assert prefix == "/opt/elsewhere"
    assert torch.startswith("/opt/elsewhere/lib/")


def test_the_audit_names_a_node_whose_lock_differs(
    tmp_path: Path, n1: Any, n2: Any, module: Module, lock: dict[str, str]
) -> None:
    digests = {}
    for host, names in {"n1": ["filelock"], "n2": ["fsspec"]}.items():
        built = module(
            host,
            "gpuops.cluster.python_environment",
            name="drift",
            root=ROOT,
            lock="\n".join(lock[name] for name in names),
            find_links=LINKS,
            no_index=True,
        )
        digests[host] = built["lock_sha256"][:12]
    command = ["ansible-playbook", "-i", "inventories/lab", "playbooks/audit.yml"]
    command += ["-e", f"audit_report_dir={tmp_path}", "-e", "audit_hosts=gpu_nodes"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    for host in (n1, n2):
        host.check_output(f"rm -r {ROOT}/drift*")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    item = next(kind["items"]["torch"] for kind in report["kinds"] if "torch" in kind["items"])
    assert item["usual"] is None, "of two nodes none is the majority"
    named = {host: group["value"] for group in item["differing"] for host in group["hosts"]}
    for host, digest in digests.items():
        assert f"drift: no torch, lock {digest}" in named[host]


OFFER = """
- hosts: n2
  gather_facts: false
  tasks:
    - ansible.builtin.apt:
        name: environment-modules
        install_recommends: false
        lock_timeout: 600
    - ansible.builtin.include_role:
        name: gpuops.cluster.pytorch_env
        tasks_from: offer
"""
# Starts the kernel as Jupyter does, and has it compute.
ASK_KERNEL = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="notebook", startup_timeout=120)
client.execute_interactive("import sys; print(sys.prefix, 6 * 7)", timeout=120)
manager.shutdown_kernel(now=True)
"""


def test_users_find_an_environment_by_module_and_as_a_kernel_of_jupyter(
    tmp_path: Path, n2: Any, module: Module
) -> None:
    tools = n2.file("/srv/gpuops-lab/wheels/tools/requirements.txt").content_string
    place = {"name": "notebook", "root": "/opt/notebook", "lock": tools, "installer": "uv"}
    built = module("n2", "gpuops.cluster.python_environment", **place, find_links=LINKS, no_index=True)
    assert built["failed"] is False, built
    (tmp_path / "notebook.lock").write_text(tools)
    (tmp_path / "offer.yml").write_text(OFFER)
    given = {
        "pytorch_env_environments": [
            {"name": "notebook", "lock_file": str(tmp_path / "notebook.lock"), "jupyter": True}
        ],
        "pytorch_env_root": "/opt/notebook",
        "pytorch_env_default": "",
        "pytorch_env_modulefiles_dir": "/usr/share/modules/modulefiles/gpuops",
    }
    command = ["ansible-playbook", "-i", "inventories/lab", str(tmp_path / "offer.yml"), "-e", json.dumps(given)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    load = "module load gpuops/notebook && command -v jupyter && echo $PYTHONNOUSERSITE"
    said = n2.check_output(f"bash -lc '{load} && module unload gpuops/notebook && ! command -v jupyter'").split()
    assert said == ["/opt/notebook/notebook/bin/jupyter", "1"]
    listed = json.loads(n2.check_output("/opt/notebook/notebook/bin/jupyter-kernelspec list --json"))["kernelspecs"]
    assert listed["notebook"]["resource_dir"] == "/usr/local/share/jupyter/kernels/notebook"
    n2.check_output("cat > /srv/ask.py << 'END'\n" + ASK_KERNEL + "END")
    assert n2.check_output("/opt/notebook/notebook/bin/python /srv/ask.py").split() == [built["path"], "42"]


def test_what_gets_in_from_outside_is_named(n1: Any, module: Module) -> None:
    site = "/root/.local/lib/python3.11/site-packages"
    n1.check_output(f"mkdir -p /opt/other/lib {site}/torch && touch /opt/other/lib/libnccl.so.2.18.1")
    n1.check_output("echo 'export LD_LIBRARY_PATH=/opt/other/lib' > /etc/profile.d/other.sh")
    found = module("n1", "gpuops.cluster.python_clashes")["clashes"]
    n1.check_output(f"rm -rf /opt/other {site}/torch /etc/profile.d/other.sh")
    assert (
        "/etc/profile.d/other.sh sets LD_LIBRARY_PATH=/opt/other/lib, "
        "which puts libnccl.so in /opt/other/lib before those of the environments"
    ) in found
    assert f"{site} has torch of its own" in found
    assert module("n1", "gpuops.cluster.python_clashes")["clashes"] == []
