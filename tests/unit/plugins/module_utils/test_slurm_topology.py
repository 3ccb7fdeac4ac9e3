"""topology.conf, and all files together for very many nodes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_conf as conf
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_state as states
from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_topology as topology


def node(name: str, switch: str = "", address: str = "") -> dict[str, Any]:
    gres = [{"type": "h100", "file": "/dev/nvidia0", "cores": "", "links": ""}]
    shape = {"name": name, "cpus": 4, "sockets": 1, "cores": 4, "threads": 1, "real_memory": 4000, "gres": gres}
    return {"node": shape, "switch": switch, "address": address, "options": {}}


def tree(switches: dict[str, str], parents: dict[str, str]) -> list[str]:
    records = [node(name, switch) for name, switch in switches.items()]
    return topology.topology_lines({"kind": "tree", "parents": parents}, records)


def test_leaves_and_spines() -> None:
    parents = {"leaf1": "spine", "leaf2": "spine"}
    assert tree({"n1": "leaf1", "n2": "leaf1", "n3": "leaf2"}, parents) == [
        "SwitchName=leaf1 Nodes=n[1-2]",
        "SwitchName=leaf2 Nodes=n3",
        "SwitchName=spine Switches=leaf[1-2]",
    ]


def test_three_levels_name_every_switch_once() -> None:
    parents = {"leaf1": "spine1", "leaf2": "spine2", "spine1": "core", "spine2": "core"}
    assert tree({"n1": "leaf1", "n2": "leaf2"}, parents)[2:] == [
        "SwitchName=spine1 Switches=leaf1",
        "SwitchName=spine2 Switches=leaf2",
        "SwitchName=core Switches=spine[1-2]",
    ]


def test_parts_that_nothing_joins_are_joined() -> None:
    assert tree({"n1": "a", "n2": "b"}, {})[-1] == "SwitchName=joined Switches=a,b"
    assert tree({"n1": "a", "n2": "a"}, {}) == ["SwitchName=a Nodes=n[1-2]"]


@pytest.mark.parametrize(
    ("switches", "parents", "words"),
    [
        ({"n1": "a", "n2": ""}, {}, "n2 has no slurm_switch"),
        ({"n1": "a"}, {"a": "b", "b": "a"}, "a > b > a is a loop"),
        ({"n1": "a"}, {"a": "a"}, "a > a is a loop"),
        ({"n1": "a", "n2": "b"}, {"a": "b"}, "b has nodes and switches below it"),
    ],
)
def test_trees_that_are_none(switches: dict[str, str], parents: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tree(switches, parents)


def test_blocks() -> None:
    records = [node("n1", "b1"), node("n2", "b1"), node("n3", "b2")]
    assert topology.topology_lines({"kind": "block", "block_sizes": [18, 36]}, records) == [
        "BlockName=b1 Nodes=n[1-2]",
        "BlockName=b2 Nodes=n3",
        "BlockSizes=18,36",
    ]
    assert conf.known({"TopologyPlugin": "topology/block"}, "22.05.8") == {}
    assert conf.known({"TopologyPlugin": "topology/block"}, "23.11.4") == {"TopologyPlugin": "topology/block"}


def seconds(count: int) -> float:
    """For a run over nodes that have an address each, and so a line each."""
    hosts = {f"g{i}": node(f"g{i}", f"leaf{i // 32}", f"10.0.{i >> 8}.{i & 255}") for i in range(count)}
    params: dict[str, Any] = {"options": {}, "cgroup": {}, "topology": {"kind": "tree"}}
    params["partitions"] = [{"name": "main"}, {"name": "half", "nodes": list(hosts)[::2]}]
    began = time.process_time()
    state = states.merge(states.empty(), hosts, controllers=[], databases=[], nodes=list(hosts))[0]
    text = topology.files(params, state, "24.11.5")["slurm.conf"]
    assert states.changed_keys(text, text.replace("g7 ", "g07 ")) >= {"nodename"}
    return time.process_time() - began


def test_switches_that_lldpd_has_heard_of() -> None:
    heard = {
        "lldp": [
            {
                "interface": [
                    {
                        "name": "eth0",
                        "chassis": [{"id": [{"type": "mac", "value": "aa:bb"}], "name": [{"value": "leaf1"}]}],
                    },
                    {"name": "ib0", "chassis": [{"id": [{"type": "mac", "value": "cc:dd"}]}]},
                ]
            }
        ]
    }
    assert topology.neighbours(json.dumps(heard)) == {"eth0": "leaf1", "ib0": "cc:dd"}
    assert topology.neighbours('{"lldp": [{}]}') == topology.neighbours("") == topology.neighbours("[]") == {}


def test_plugins_have_a_file_only_when_there_are_any() -> None:
    params: dict[str, Any] = {"options": {}, "cgroup": {}, "partitions": [], "topology": {}, "plugstack": []}
    assert "plugstack.conf" not in topology.files(params, states.empty(), "22.05")
    params["plugstack"] = ["required pyxis.so", "optional other.so"]
    written = topology.files(params, states.empty(), "22.05")["plugstack.conf"]
    assert written == f"{conf.HEADER}{topology.PACKAGED}\nrequired pyxis.so\noptional other.so\n"


def test_mpi_conf_where_the_release_reads_it_and_nobody_else_wrote_it() -> None:
    params: dict[str, Any] = {"options": {}, "cgroup": {}, "partitions": [], "topology": {}, "plugstack": []}
    assert "mpi.conf" not in topology.files(params, states.empty(), "22.05")
    params["mpi"] = {"PMIxCollFence": "ring", "PMIxDebug": ""}
    assert "mpi.conf" not in topology.files(params, states.empty(), "21.08.5")
    files = topology.files(params, states.empty(), "22.05.8")
    ours = conf.HEADER + "PMIxCollFence=ring\n"
    assert files["mpi.conf"] == ours
    none = {"plugstack.conf": "", "mpi.conf": ""}
    assert topology.optional(files, none) == []
    assert files["mpi.conf"] == ours
    assert "mpi.conf" in topology.optional(files, {**none, "mpi.conf": "PMIxDebug=1\n"})[0]
    assert "mpi.conf" not in files, "somebody else's file stays"
    assert topology.optional(files, {"plugstack.conf": f"{conf.HEADER}required a.so\n", "mpi.conf": ours}) == []
    assert (files["mpi.conf"], files["plugstack.conf"]) == (conf.HEADER, f"{conf.HEADER}{topology.PACKAGED}\n")


def test_ten_thousand_nodes_take_less_than_five_seconds_and_grow_evenly() -> None:
    small, large = min(seconds(2000) for _run in range(3)), min(seconds(10000) for _run in range(2))
    assert large < 5
    assert large < 5 * small * 2.5, f"2000 nodes {small:.2f} s, 10000 nodes {large:.2f} s"
