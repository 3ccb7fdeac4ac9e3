"""/etc/nccl.conf on hosts without RDMA, and what the role does and refuses on a host whose facts show RDMA devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]


def play(tmp_path: Path, fabric: dict[str, Any], *words: str, **variables: Any) -> tuple[int, str]:
    """Applies the role to n2 with these facts of the fabric; returns the exit status and the output on one line."""
    book = [
        {
            "name": "A host with RDMA devices",
            "hosts": "n2",
            "gather_facts": False,
            "vars": variables,
            "tasks": [
                {"ansible.builtin.set_fact": {"fabric": fabric, "cacheable": True}},
                {"ansible.builtin.import_role": {"name": "gpuops.cluster.infiniband"}},
            ],
        }
    ]
    file = tmp_path / "play.yml"
    file.write_text(json.dumps(book))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventories/lab", str(file), *words]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def device(name: str, state: str = "active", rate: int = 400) -> dict[str, Any]:
    port = {
        "port": 1,
        "state": state,
        "physical_state": "LinkUp",
        "link_layer": "infiniband",
        "rate_gbps": rate,
        "lid": 7,
        "gids": [],
    }
    return {"name": name, "board": "MT_0838", "firmware": "28.41.1000", "pci": None, "ports": [port]}


def fabric(*devices: dict[str, Any]) -> dict[str, Any]:
    return {"ethernet": [], "rdma": list(devices), "problems": []}


def settings(host: Any) -> dict[str, str]:
    lines = host.file("/etc/nccl.conf").content_string.splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_the_socket_interface_is_exact_and_there(connect: Any, name: str) -> None:
    host = connect(name)
    value = settings(host)["NCCL_SOCKET_IFNAME"]
    assert value.startswith("=")
    assert host.interface(value[1:]).addresses[0].startswith("10.")


def test_the_user_s_lines_are_there_and_the_old_file_is_kept(n1: Any) -> None:
    assert settings(n1)["NCCL_DEBUG"] == "WARN"
    kept = n1.check_output("cat /etc/nccl.conf.*~")
    assert kept.strip() == "NCCL_DEBUG=INFO"


def test_no_package_comes_to_a_host_without_rdma(n1: Any) -> None:
    assert not n1.package("rdma-core").is_installed
    assert "NCCL_IB_HCA" not in settings(n1)


def test_a_subnet_that_fits_no_interface_is_refused(tmp_path: Path, n2: Any) -> None:
    status, out = play(tmp_path, fabric(), infiniband_socket_subnet="192.0.2.0/24")
    assert status != 0
    assert "infiniband_socket_subnet 192.0.2.0/24 must hold an address of exactly one interface, and holds none" in out
    assert settings(n2)["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_a_port_without_a_subnet_manager_fails_by_name(tmp_path: Path, n2: Any) -> None:
    status, out = play(tmp_path, fabric(device("mlx5_0"), device("mlx5_1", "init")))
    assert status != 0
    assert "n2: mlx5_1:1 stays in Initializing: no subnet manager answers on its fabric" in out
    # The role asks the real verbs library, which the facts of this test cannot deceive.
    assert "the verbs library does not see mlx5_0, mlx5_1" in out
    assert n2.package("rdma-core").is_installed
    assert settings(n2)["NCCL_IB_HCA"] == "=mlx5_0:1"


def test_check_mode_does_not_wait_for_a_subnet_manager_that_is_not_there(tmp_path: Path, n2: Any) -> None:
    """It says what it would install and start; the ports stay as they are, and nobody waits half a minute for them."""
    assert not n2.package("opensm").is_installed
    ports = fabric(device("mlx5_0", "init"))
    wanted = {"infiniband_subnet_managers": ["n2"], "infiniband_port_problems": "report"}
    status, out = play(tmp_path, ports, "--check", **wanted)
    assert status == 0, out
    assert "TASK [gpuops.cluster.infiniband : Opensm | Install it] *" in out
    assert "mlx5_0:1 stays in Initializing: no subnet manager answers on its fabric" in out
    assert "FAILED - RETRYING" not in out
    assert not n2.package("opensm").is_installed


def test_doca_without_its_repository_and_a_wrong_mtu_are_refused(tmp_path: Path) -> None:
    status, out = play(tmp_path, fabric(), infiniband_source="doca")
    assert status != 0
    assert "n2: infiniband_source is doca: set infiniband_doca_repository and infiniband_doca_key" in out
    status, out = play(tmp_path, fabric(), infiniband_ipoib_mode="datagram", infiniband_ipoib_mtu=65520)
    assert status != 0
    assert "n2: infiniband_ipoib_mtu is 65520, expected at most 4092 in mode datagram" in out


def test_doca_comes_from_its_repository_by_its_key_alone(tmp_path: Path, n2: Any) -> None:
    wanted = {
        "infiniband_source": "doca",
        "infiniband_doca_repository": "file:/srv/doca",
        "infiniband_doca_key": f"{os.environ['MOLECULE_EPHEMERAL_DIRECTORY']}/doca.pub",
        "infiniband_port_problems": "report",
    }
    status, out = play(tmp_path, fabric(device("mlx5_0")), "--check", **wanted)
    assert "Name the repository] " in out
    assert "apt knows no package" not in out
    assert not n2.file("/etc/apt/sources.list.d/gpuops-doca.sources").exists
    status, out = play(tmp_path, fabric(device("mlx5_0")), **wanted)
    assert "the verbs library does not see mlx5_0" in out, "past the packages, the kernel is asked"
    assert n2.package("doca-ofed").version == "2.9.1-0.1.7"
    status, out = play(tmp_path, fabric(device("mlx5_0")), **wanted)
    assert "changed=0" in out
    n2.check_output("apt-get -qq remove -y doca-ofed")
    debian = {**wanted, "infiniband_doca_key": str(tmp_path / "debian.asc")}
    (tmp_path / "debian.asc").write_bytes(
        n2.file("/usr/share/keyrings/debian-archive-keyring.gpg").content  # another key, and not even armored
    )
    status, out = play(tmp_path, fabric(device("mlx5_0")), **debian)
    assert status != 0
    assert "NO_PUBKEY" in out or "not signed" in out
    assert not n2.package("doca-ofed").is_installed


def test_a_repository_that_is_not_there_is_named(tmp_path: Path, n2: Any) -> None:
    wanted = {
        "infiniband_source": "doca",
        "infiniband_doca_repository": "file:/srv/nothing",
        "infiniband_doca_key": f"{os.environ['MOLECULE_EPHEMERAL_DIRECTORY']}/doca.pub",
    }
    status, out = play(tmp_path, fabric(device("mlx5_0")), **wanted)
    assert status != 0
    assert "file:/srv/nothing" in out
    assert not n2.package("doca-ofed").is_installed
    n2.check_output("rm /etc/apt/sources.list.d/gpuops-doca.sources && apt-get -qq update")
