"""What the controller remembers, and what a change asks of the daemons of each release."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_state as states


def host(name: str, gpus: int = 2, **more: Any) -> dict[str, Any]:
    gres = [{"type": "h100", "file": f"/dev/nvidia{i}", "cores": "", "links": ""} for i in range(gpus)]
    node = {"name": name, "cpus": 4, "sockets": 1, "cores": 4, "threads": 1, "real_memory": 1000, "gres": gres, **more}
    return {"node": node, "address": "", "options": {}, "version": "22.05.8"}


def merge(
    state: dict[str, Any], hosts: dict[str, Any], nodes: list[str], **more: Any
) -> tuple[dict[str, Any], list[str]]:
    return states.merge(state, hosts, controllers=["ctl"], databases=["ctl"], nodes=nodes, **more)


@pytest.fixture
def known() -> dict[str, Any]:
    return merge(states.empty(), {"ctl": host("ctl"), "n1": host("n1"), "n2": host("n2")}, ["n1", "n2"])[0]


def test_a_limited_run_forgets_nobody(known: dict[str, Any]) -> None:
    state, notes = merge(known, {"n3": host("n3")}, ["n1", "n2", "n3"])
    assert list(state["nodes"]) == ["n1", "n2", "n3"] and not notes
    assert state["controllers"] == known["controllers"] and state["databases"] == known["databases"]
    assert state["nodes"]["n1"] == known["nodes"]["n1"]


def test_a_controller_is_no_node_unless_it_is_listed(known: dict[str, Any]) -> None:
    assert list(known["nodes"]) == ["n1", "n2"]
    state, _notes = merge(states.empty(), {"ctl": host("box")}, ["ctl"])
    assert state["nodes"]["ctl"]["node"]["name"] == "box" and state["controllers"]["ctl"]["name"] == "box"


def test_a_node_that_left_the_inventory_stays_until_it_may_go(known: dict[str, Any]) -> None:
    state, notes = merge(known, {}, ["n1"])
    assert list(state["nodes"]) == ["n1", "n2"] and "n2 is no longer in the inventory" in notes[0]
    state, notes = merge(known, {}, ["n1"], removal_allowed=True)
    assert list(state["nodes"]) == ["n1"] and not notes


def test_a_node_with_jobs_does_not_leave(known: dict[str, Any]) -> None:
    state, _notes = merge(known, {}, ["n1"], removal_allowed=True)
    assert states.leaving(known, state) == ["n2"] and states.leaving(known, known) == []
    renamed = merge(known, {"10.0.0.2": host("n2")}, ["n1", "10.0.0.2"])[0]
    assert states.leaving(known, renamed) == []
    with pytest.raises(states.Refused, match=r"n2 would leave slurm.conf while jobs run there \(7, 8\)"):
        states.refuse_leaving(["n2"], ["7", "8"])
    states.refuse_leaving(["n2"], [])


def test_a_node_under_a_new_inventory_name_is_the_same_node(known: dict[str, Any]) -> None:
    state, notes = merge(known, {"10.0.0.2": host("n2")}, ["n1", "10.0.0.2"])
    assert list(state["nodes"]) == ["n1", "10.0.0.2"] and not notes


def test_two_hosts_of_one_name_are_refused() -> None:
    with pytest.raises(states.Refused, match=r"10\.0\.0\.1 and 10\.0\.0\.2 have the same short host name node"):
        merge(states.empty(), {"10.0.0.1": host("node"), "10.0.0.2": host("node")}, ["10.0.0.1", "10.0.0.2"])


def test_a_lost_gpu_does_not_shrink_the_node(known: dict[str, Any]) -> None:
    sick = host("n1", gpus=1, gpus_complete=False, note="not all GPUs answer: GPU 1 is lost")
    state, notes = merge(known, {"n1": sick}, ["n1", "n2"])
    assert len(state["nodes"]["n1"]["node"]["gres"]) == 2 and "GPU 1 is lost" in notes[0] and "the 2 GPUs" in notes[0]


def test_a_removed_gpu_does(known: dict[str, Any]) -> None:
    state, notes = merge(known, {"n1": host("n1", gpus=1)}, ["n1", "n2"])
    assert len(state["nodes"]["n1"]["node"]["gres"]) == 1 and not notes


def marked(
    known: dict[str, Any], new: dict[str, Any], keys: set[str], version: str, cgroup: bool = False
) -> dict[str, Any]:
    after = copy.deepcopy(new)
    states.mark(known, after, keys=keys, cgroup_changed=cgroup, version=version, now=1000)
    return after


def test_a_new_partition_needs_no_restart(known: dict[str, Any]) -> None:
    assert marked(known, known, {"partitionname"}, "22.05.8")["since"] == {"slurmctld": 0, "slurmd": 0}


def test_a_new_node_restarts_the_controller_before_23_11_and_no_slurmd(known: dict[str, Any]) -> None:
    new = merge(known, {"n3": host("n3")}, ["n1", "n2", "n3"])[0]
    old_release = marked(known, new, {"nodename"}, "22.05.8")
    assert old_release["since"] == {"slurmctld": 1000, "slurmd": 0}
    assert {name: record["since"] for name, record in old_release["nodes"].items()} == {"n1": 0, "n2": 0, "n3": 0}
    assert marked(known, new, {"nodename"}, "23.11.4")["since"] == {"slurmctld": 0, "slurmd": 0}


def test_only_the_node_that_changed_restarts_its_slurmd(known: dict[str, Any]) -> None:
    new = merge(known, {"n1": host("n1", gpus=4)}, ["n1", "n2"])[0]
    after = marked(known, new, {"nodename"}, "22.05.8")
    assert after["nodes"]["n1"]["since"] == 1000 and after["nodes"]["n2"]["since"] == 0


@pytest.mark.parametrize("key", ["proctracktype", "taskplugin", "jobacctgathertype", "grestypes"])
def test_plugins_restart_everything_before_23_11(known: dict[str, Any], key: str) -> None:
    assert marked(known, known, {key}, "22.05.8")["since"] == {"slurmctld": 1000, "slurmd": 1000}
    assert marked(known, known, {key}, "24.11.5")["since"] == {"slurmctld": 0, "slurmd": 0}


def test_ports_restart_everything_everywhere(known: dict[str, Any]) -> None:
    assert marked(known, known, {"slurmdport"}, "24.11.5")["since"] == {"slurmctld": 1000, "slurmd": 1000}


def test_cgroup_conf_is_read_at_the_start_of_slurmd(known: dict[str, Any]) -> None:
    assert marked(known, known, set(), "22.05.8", cgroup=True)["since"] == {"slurmctld": 0, "slurmd": 1000}


def test_changed_keys_see_every_line_of_a_name() -> None:
    old = "A=1\nNodeName=n1 x\nNodeName=n2 x\n# C=1\n"
    assert states.changed_keys(old, "a=1\nNodeName=n1 x\nNodeName=n3 x\nB=2\n") == {"nodename", "b"}


def test_directories_do_not_move_under_jobs() -> None:
    with pytest.raises(states.Refused, match="statesavelocation changes from /a to /b while 3 jobs"):
        states.refuse_moves("StateSaveLocation=/a\n", "StateSaveLocation=/b\n", 3)
    states.refuse_moves("StateSaveLocation=/a\n", "StateSaveLocation=/b\n", 0)


def test_a_cluster_keeps_its_name() -> None:
    options = {"clustername": "lab", "statesavelocation": "/state"}
    with pytest.raises(states.Refused, match=r"slurm_cluster_name is 'lab', but /state holds .* 'hydra'"):
        states.refuse_rename(options, lambda path: "hydra|42\n" if path == "/state/clustername" else "")
    states.refuse_rename(options, lambda _path: "lab\n")
    states.refuse_rename(options, lambda _path: "")


@pytest.mark.parametrize(
    ("controller", "node", "fits"),
    [
        ("24.11.5", "24.11.5", True),
        ("24.11.5", "23.11.4", True),
        ("24.11.5", "22.05.8", False),
        ("22.05.8", "21.08.5", True),
        ("21.08.5", "22.05.8", False),
        ("25.11.1", "24.11.5", True),
        ("26.05.0", "24.11.5", False),
        ("22.05.8", "", True),
    ],
)
def test_version_skew(controller: str, node: str, fits: bool) -> None:
    hosts = {"n1": {**host("n1"), "version": node}}
    if fits:
        states.refuse_skew(controller, hosts)
    else:
        with pytest.raises(states.Refused, match=f"n1 has Slurm {node}, the controller {controller}"):
            states.refuse_skew(controller, hosts)


@pytest.mark.parametrize(
    ("controller", "database", "fits"),
    [
        ("22.05.8", "22.05.8", True),
        ("22.05.8", "23.11.4", True),
        ("22.05.8", "24.05.1", False),
        ("23.11.4", "22.05.8", False),
        ("23.11.4", "0", True),
        ("23.11.4", "", True),
    ],
)
def test_slurmdbd_is_upgraded_first(controller: str, database: str, fits: bool) -> None:
    hosts = {"db": {"node": {}, "database_version": database}}
    if fits:
        states.refuse_skew(controller, hosts)
    else:
        with pytest.raises(states.Refused, match=f"db has slurmdbd {database}, the controller slurmctld {controller}"):
            states.refuse_skew(controller, hosts)
