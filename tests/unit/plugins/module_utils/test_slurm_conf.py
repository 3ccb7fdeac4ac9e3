"""slurm.conf and its companions as text: short, linear, right for each release."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_conf as conf
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_config_test as config_test
from hypothesis import given
from hypothesis import strategies as st


def record(name: str, gpus: int = 8, **more: Any) -> dict[str, Any]:
    gres = [
        {"type": "h100", "file": f"/dev/nvidia{i}", "cores": "0-3" if i < 4 else "4-7", "links": ""}
        for i in range(gpus)
    ]
    node = {"name": name, "cpus": 16, "sockets": 2, "cores": 4, "threads": 2, "real_memory": 64000, "gres": gres}
    return {"address": "", "options": {}, "node": node, "since": 0, **more}


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1"], "n1"),
        (["n8", "n9", "n10", "n12"], "n[8-10,12]"),
        (["n01", "n02", "n10"], "n[01-02],n10"),
        (["gpu-a-1", "gpu-a-2", "login"], "gpu-a-[1-2],login"),
        (["a1b", "a2b"], "a1b,a2b"),
        (["2a", "rack3-node-007", "rack3-node-008"], "2a,rack3-node-[007-008]"),
        ([], ""),
    ],
)
def test_hostlists(names: list[str], short: str) -> None:
    assert conf.hostlist(names) == short


def expand(text: str) -> set[str]:
    """Slurm's own reading of our short form, in few words."""
    names = set()
    while text:
        head, _comma, rest = text.partition(",")
        if "[" in head:
            inside, _bracket, rest = text[text.index("[") + 1 :].partition("]")
            prefix = text[: text.index("[")]
            for part in inside.split(","):
                low, _dash, high = part.partition("-")
                names |= {f"{prefix}{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)}
            rest = rest.removeprefix(",")
        else:
            names.add(head)
        text = rest
    return names


@given(st.sets(st.from_regex(r"\A[a-z][a-z0-9-]{0,6}[a-z]?[0-9]{0,3}\Z"), max_size=30))
def test_no_name_is_lost_or_made_up(names: set[str]) -> None:
    assert expand(conf.hostlist(sorted(names))) == names


def test_alike_nodes_share_a_line_and_others_do_not() -> None:
    shape = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000"
    records = [record("n1"), record("n2"), record("n3", gpus=0), record("n4", options={"Features": "nvme"})]
    assert conf.node_lines(records) == [
        f"NodeName=n[1-2] {shape} Gres=gpu:h100:8 State=UNKNOWN",
        f"NodeName=n3 {shape} State=UNKNOWN",
        f"NodeName=n4 {shape} Gres=gpu:h100:8 Features=nvme State=UNKNOWN",
    ]


def test_a_node_with_an_address_of_its_own() -> None:
    assert conf.node_lines([record("n1", address="10.0.0.1")])[0].startswith("NodeName=n1 NodeAddr=10.0.0.1 Sockets=2")


def test_gres_lines_by_file_and_cores() -> None:
    assert conf.gres_lines([record("n1"), record("n2"), record("n3", gpus=0)]) == [
        "NodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-3",
        "NodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=4-7",
    ]


def test_devices_with_links_or_several_files_stand_alone() -> None:
    one = record("n1", gpus=0)
    one["node"]["gres"] = [
        {"type": "v100", "file": "/dev/nvidia0", "cores": "", "links": "-1,2"},
        {"type": "v100", "file": "/dev/nvidia1", "cores": "", "links": "2,-1"},
        {"type": "a100_1g.5gb", "file": "/dev/nvidia2,/dev/nvidia-caps/nvidia-cap3", "cores": "", "links": ""},
    ]
    assert conf.gres_lines([one]) == [
        "NodeName=n1 Name=gpu Type=v100 File=/dev/nvidia0 Links=-1,2",
        "NodeName=n1 Name=gpu Type=v100 File=/dev/nvidia1 Links=2,-1",
        "NodeName=n1 Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap3",
    ]


def test_declared_gres_stand_beside_the_gpus_and_are_only_counted() -> None:
    one = record("n1", gpus=1, options={"Features": "nvme", "Gres": "scratch:3500G, licence:matlab:2"})
    (line,) = conf.node_lines([one])
    assert "Gres=gpu:h100:1,scratch:3500G,licence:matlab:2 Features=nvme" in line
    assert conf.gres_lines([one])[1:] == [
        "NodeName=n1 Name=scratch Count=3500G Flags=CountOnly",
        "NodeName=n1 Name=licence Type=matlab Count=2 Flags=CountOnly",
    ]
    assert conf.gres_types("gpu", [one, record("n2")]) == "gpu,scratch,licence"
    assert conf.gres_types(["gpu", "mps"], []) == "gpu,mps"


def test_nodes_in_two_partitions_have_one_nodename_line() -> None:
    records = {"10.0.0.1": record("n1"), "10.0.0.2": record("n2")}
    partitions: list[dict[str, Any]] = [
        {"name": "main", "default": True},
        {"name": "debug", "nodes": ["10.0.0.2", "gone"], "options": {"MaxTime": "30"}},
    ]
    assert conf.partition_lines(partitions, records) == [
        "PartitionName=main Nodes=n[1-2] DefMemPerCPU=4000 MaxTime=UNLIMITED State=UP Default=YES",
        "PartitionName=debug Nodes=n2 DefMemPerCPU=4000 MaxTime=30 State=UP Default=NO",
    ]
    assert len(conf.node_lines(records.values())) == 1


def test_only_what_a_release_knows_is_written() -> None:
    cgroup = {"CgroupPlugin": "disabled", "ConstrainDevices": True, "ConstrainSwapSpace": ""}
    assert conf.known(cgroup, "21.08.5") == {"ConstrainDevices": "yes"}
    assert conf.known(cgroup, "23.11.4") == {"ConstrainDevices": "yes"}
    assert conf.known(cgroup, "24.11.5") == {"CgroupPlugin": "disabled", "ConstrainDevices": "yes"}
    assert conf.known({"CgroupPlugin": "autodetect"}, "22.05.8") == {"CgroupPlugin": "autodetect"}
    assert conf.known({"TaskPlugin": ["a", "b"], "X": None, "Y": [], "Z": 0}, "22.05.8") == {
        "TaskPlugin": "a,b",
        "Z": "0",
    }


def test_controllers_by_name_with_address_in_parentheses() -> None:
    assert conf.controller_lines([{"name": "c1", "address": "10.0.0.9"}, {"name": "c2", "address": ""}]) == [
        "SlurmctldHost=c1(10.0.0.9)",
        "SlurmctldHost=c2",
    ]


def test_ten_thousand_nodes_are_quick() -> None:
    records = [record(f"gpu{i:05d}", options={"Weight": str(i % 7)}) for i in range(10000)]
    start = time.process_time()
    text = "\n".join(conf.node_lines(records) + conf.gres_lines(records))
    assert time.process_time() - start < 5
    assert text.count("NodeName=") == 9


def test_scratch_configuration_cannot_reach_the_cluster() -> None:
    text = (
        "ClusterName=lab\nSlurmctldHost=ctl\nSlurmctldHost=other\nSlurmctldPort=6817\nSlurmdPort=6818\nStateSaveLocation=/var/lib/x\n"
        "AccountingStorageType=accounting_storage/slurmdbd\nHealthCheckProgram=/bin/x\nNodeName=n1\nWrongOption=1\n"
    )
    options = conf.parse(config_test.scratch_text(text, "/tmp/s", 12345))
    assert options["slurmctldport"] == "12345" and options["slurmdport"] == "1"
    assert options["statesavelocation"] == "/tmp/s" and options["accountingstoragetype"] == "accounting_storage/none"
    assert options["slurmctldhost"] == "ctl" and options["wrongoption"] == "1" and "healthcheckprogram" not in options


def test_what_a_daemon_says_before_it_dies_is_the_complaint(tmp_path: Any) -> None:
    program = tmp_path / "slurmctld"
    program.write_text(
        "#!/bin/sh\necho 'slurmctld: error: MailProg'\necho 'slurmctld: fatal: bad option Foo' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert config_test.complaint(str(program), {"slurm.conf": "ClusterName=x\n"}, user) == "fatal: bad option Foo"
    program.write_text("#!/bin/sh\necho 'slurmctld: Running as primary controller'\nsleep 60\n")
    started = time.monotonic()
    assert config_test.complaint(str(program), {"slurm.conf": "ClusterName=x\n"}, user) == ""
    assert time.monotonic() - started < 10
