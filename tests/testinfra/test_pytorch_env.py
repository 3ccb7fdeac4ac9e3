"""Environments of the lab's nodes: what was locked is what runs, building another never harms the one in use, and the
training stage says of parallel training what is right, what is slow, and who is guilty."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = "/opt/gpuops/envs"
PROJECT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((PROJECT / "roles/nccl_tests/files/acceptance.schema.json").read_text(encoding="utf-8"))
Module = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def lock(connect: Callable[[str], Any]) -> dict[str, str]:
    """The wheelhouse's lock: line by project."""
    text = connect("n1").file("/srv/gpuops-lab/wheels/requirements.txt").content_string
    return {line.split("==")[0]: line for line in text.splitlines()}


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


LATE = """
import os, time
while not os.path.exists("/tmp/go"):
    time.sleep(0.1)
import fsspec
print(fsspec.__file__)
"""


def test_a_job_keeps_its_environment_while_another_takes_its_place(
    n1: Any, build: Module, lock: dict[str, str]
) -> None:
    """Upgrade and rollback under a process that has not yet imported all that it will."""
    build([lock["filelock"], lock["fsspec"]])
    n1.check_output("cat > /tmp/job.py << 'END'\n" + LATE + "END")
    n1.check_output("rm -f /tmp/go /tmp/job.out")
    python = n1.check_output("readlink -f /opt/test-envs/small") + "/bin/python"
    n1.check_output(f"nohup {python} /tmp/job.py > /tmp/job.out 2>&1 < /dev/null &")
    other = build([lock["filelock"]])
    assert other["changed"] is True
    n1.check_output("touch /tmp/go; for i in $(seq 300); do [ -s /tmp/job.out ] && break; sleep 0.1; done")
    assert "/opt/test-envs/small-" in n1.file("/tmp/job.out").content_string
    assert not n1.run("/opt/test-envs/small/bin/python -c 'import fsspec'").succeeded, "new jobs have the new one"


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


@pytest.fixture
def offline(n2: Any) -> Iterator[None]:
    """n2 without a network beyond the lab's own bridge: this machine forwards nothing of it."""
    address = n2.check_output("hostname -I").split()[0]
    table = ["nft", "add", "table", "ip", "gpuops_test_offline"]
    chain = "add chain ip gpuops_test_offline forward { type filter hook forward priority -10 ; }"
    rule = f"add rule ip gpuops_test_offline forward ip saddr {address} counter reject"
    for command in (table, ["nft", chain], ["nft", rule]):
        subprocess.run(command, check=True)
    yield
    subprocess.run(["nft", "delete", "table", "ip", "gpuops_test_offline"], check=True)


@pytest.mark.usefixtures("offline")
def test_a_bundle_installs_without_network(
    tmp_path: Path, ctl: Any, n2: Any, module: Module, lock: dict[str, str]
) -> None:
    """Made on ctl, which stands for the connected machine; copied to n2, checked there, and installed from."""
    (tmp_path / "small.lock").write_text(f"{lock['filelock']}\n{lock['pip']}\n")
    given = {
        "bundle_host": "ctl",
        "bundle_dir": "/srv/bundle",
        "bundle_locks": [str(tmp_path / "small.lock")],
        "bundle_packages": ["tree"],
        "bundle_pip_options": ["--no-index", "--find-links=/srv/gpuops-lab/wheels"],
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventories/lab", "playbooks/bundle.yml"]
    command += ["-e", json.dumps(given)]
    ctl.check_output("rm -rf /srv/bundle")
    for changed in (True, False):
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (" changed=0 " not in done.stdout) is changed, done.stdout

    ssh = ["ssh", "-F", n2.backend.ssh_config]
    tar = subprocess.run([*ssh, "ctl", "tar -C /srv -cf - bundle"], check=True, capture_output=True).stdout
    subprocess.run([*ssh, "n2", "tar -C /srv -xf -"], check=True, input=tar)
    n2.check_output("cd /srv/bundle && sha256sum --check --quiet SHA256SUMS")
    built = module(
        "n2",
        "gpuops.cluster.python_environment",
        name="small",
        root="/opt/offline-envs",
        lock=(tmp_path / "small.lock").read_text(),
        find_links=["/srv/bundle/wheels"],
        no_index=True,
    )
    assert built["failed"] is False, built
    n2.check_output("/opt/offline-envs/small/bin/python -c 'import filelock'")
    apt = "-o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::sourcelist=/srv/bundle.list -o Dir::State::lists=/srv/lists"
    n2.check_output("mkdir -p /srv/lists/partial; echo 'deb [trusted=yes] file:/srv/bundle/debs ./' > /srv/bundle.list")
    n2.check_output(f"apt-get {apt} -qq update && DEBIAN_FRONTEND=noninteractive apt-get {apt} -qq -y install tree")
    assert n2.package("tree").is_installed

    n2.check_output("echo damage >> /srv/bundle/debs/Packages")
    assert "debs/Packages: FAILED" in n2.run("cd /srv/bundle && sha256sum --check --quiet SHA256SUMS").stdout


DATA = "/srv/training-data"
MODES = ("data parallel", "sharded", "gradient accumulation", "pipeline", "tensor parallel")


def train(folder: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    """The stage as users call it. The lab's cores are few and shared: figures are looked at, hardly demanded."""
    given = {
        "pytorch_env_report_dir": str(folder),
        "pytorch_env_training_efficiency": 0.0001,
        "pytorch_env_training_data_wait": 1,
        "pytorch_env_training_seconds": 0.5,
        "pytorch_env_data_sample_bytes": 4096,
        **variables,
    }
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        "inventories/lab",
        "-e",
        json.dumps(given),
    ]
    return subprocess.run(
        [*command, "playbooks/acceptance.yml", "--tags", "training"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


def stage_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole report, and its training stage's results by what was checked."""
    report: dict[str, Any] = json.loads((folder / "acceptance.json").read_text(encoding="utf-8"))
    jsonschema.validate(report, SCHEMA)
    stage = next(stage for stage in report["stages"] if stage["name"] == "training")
    return report, {result["check"]: result for result in stage["results"]}


@pytest.fixture
def data(n1: Any, n2: Any) -> Iterator[None]:
    """Something to train on, on both nodes."""
    for host in (n1, n2):
        host.check_output(f"mkdir -p {DATA} && head -c 4000000 /dev/urandom > {DATA}/one")
    yield
    for host in (n1, n2):
        host.check_output(f"rm -rf {DATA}")


@pytest.mark.usefixtures("data")
def test_training_on_both_nodes_is_right_and_measured(tmp_path: Path) -> None:
    done = train(tmp_path, pytorch_env_data_path=DATA)
    assert done.returncode == 0, done.stdout + done.stderr
    report, checks = stage_of(tmp_path)
    assert report["verdict"] == "pass"
    for mode in MODES:
        result = next(result for name, result in checks.items() if name.startswith(mode))
        assert (result["status"], result["nodes"]) == ("pass", ["n1", "n2"])
        assert "on 4 ranks" in result["reason"]
        assert 0 <= result["figures"][0]["value"] < 1e-12, "in float64 nothing but rounding is left"
    scaling = checks["scaling from one process to all"]
    figures = {figure["name"]: figure["value"] for figure in scaling["figures"]}
    assert figures["throughput"] > 0
    assert figures["compute of a step"] > 0
    assert "on 4 ranks on 2 nodes" in scaling["reason"]
    assert "the slowest is n" in checks["balance between ranks"]["reason"]
    assert "(one reader), its 2 ranks need" in checks[f"read rate of {DATA}"]["reason"]
    assert checks["data loading"]["status"] == "pass"
    page = (tmp_path / "acceptance.html").read_text(encoding="utf-8")
    assert "Throughput by ranks" in page
    assert "n2 CPU process 1" in page, "each rank has its bar"
    cases = ET.fromstring((tmp_path / "acceptance.junit.xml").read_text(encoding="utf-8")).iter("testcase")
    assert len(list(cases)) == len(checks)


def test_a_node_without_the_data_is_named(tmp_path: Path, n1: Any) -> None:
    n1.check_output(f"mkdir -p {DATA} && echo one > {DATA}/one")
    done = train(tmp_path, pytorch_env_data_path=DATA)
    n1.check_output(f"rm -rf {DATA}")
    assert done.returncode != 0
    report, checks = stage_of(tmp_path)
    assert [one["host"] for one in report["culprits"]] == ["n2"]
    assert f"the data path {DATA} is no directory here" in checks["training on all ranks"]["reason"]
    assert report["verdict"] == "fail"


def test_a_node_with_another_lock_blocks_and_is_named(tmp_path: Path, n2: Any) -> None:
    stamp = f"{ROOT}/torch/.gpuops.json"
    kept = n2.file(stamp).content_string
    n2.check_output(f'sed -i \'s/"lock_sha256": "./"lock_sha256": "x/\' {stamp}')
    done = train(tmp_path)
    n2.check_output("printf %s '" + kept + "' > " + stamp)
    assert done.returncode != 0
    report, checks = stage_of(tmp_path)
    assert report["verdict"] == "blocked"
    assert "n2 has the environment of lock x" in checks["training on all ranks"]["reason"]


# Replaces DistributedDataParallel by a model that nobody averages: what a broken network library would do unnoticed.
DEAF = """
import sys
sys.path.insert(0, "/opt/gpuops/checks")
import training_check, training_numbers
training_numbers.DistributedDataParallel = lambda model, **options: model
sys.exit(training_check.main())
"""


def test_training_that_does_not_communicate_is_found(n1: Any) -> None:
    n1.check_output("cat > /tmp/deaf.py << 'END'\n" + DEAF + "END")
    said = n1.check_output(
        f"{ROOT}/torch/bin/torchrun --standalone --nproc-per-node=2 /tmp/deaf.py --seconds=0.1 --sample-bytes=64"
    )
    found = json.loads(next(line for line in said.splitlines() if line.startswith('{"training')))["training"]
    right = {answers[0]["mode"]: all(answer["right"] for answer in answers) for answers in found["modes"]}
    assert right == {
        "data_parallel": False,
        "sharded": True,
        "gradient_accumulation": False,
        "pipeline": True,
        "tensor_parallel": True,
    }


@pytest.mark.parametrize("program", ["train_ddp.py", "train_fsdp.py", "train_pipeline.py", "train_tensor.py"])
def test_examples_train_on_both_nodes(ctl: Any, n1: Any, program: str) -> None:
    """As a new user does it: the batch script, on all nodes, and the loss falls."""
    options = {"train_ddp.py": "--epochs 2 --accumulate 2 --profile /tmp/trace"}.get(program, "")
    submit = f"sbatch --wait --nodes=2 --output=/tmp/{program}.out /opt/gpuops/examples/train.sbatch"
    ctl.check_output(f"cd /tmp && {submit} {program} {options}")
    said = n1.file(f"/tmp/{program}.out").content_string
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in said.splitlines() if "loss " in line]
    assert len(losses) > 1
    assert losses[-1] < 0.9 * losses[0], said
    if program == "train_ddp.py":
        assert "4 processes, rate 0.141" in said, "0.05 times the root of 4 processes and 2 passes"
        assert n1.check_output("ls /tmp/trace").split()
