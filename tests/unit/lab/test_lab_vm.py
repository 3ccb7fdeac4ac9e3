"""Labs of virtual machines: what is refused, QEMU's command line, what a machine is told at its first boot."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from tests.lab import cli, inventory, nodes
from tests.lab.paths import Lab, LabError, Options, State
from tests.lab.vm import lab as vm_lab
from tests.lab.vm import machine


def state(nodes_: int = 2) -> State:
    names = [f"n{number}" for number in range(1, nodes_ + 1)]
    made = State("x", Options(nodes_, "none", vm=True), "vm:1", "10.9.0.0/24", dict.fromkeys(names, "127.0.0.1"), True)
    made.ports = {name: 40000 + number for number, name in enumerate(names)}
    return made


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("up --vm --nodes 3 --gpus none", "2 virtual machines at most, not 3"),
        ("up --vm --gpus none --privileged", "--privileged is for containers"),
        ("up --vm --gpus b200x8", "--gpus none"),
    ],
)
def test_what_there_is_no_machine_for_is_refused(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path))
    assert cli.main(line.split()) == 2
    assert words in capsys.readouterr().err


def test_two_machines_have_one_cable_and_ways_of_their_own(tmp_path: Path) -> None:
    first, second = vm_lab.machines(Lab(tmp_path, "x"), state())
    assert first.link == second.link
    assert len(str(first.link)) < 100, "a socket's path is short"
    lines = [" ".join(machine.words(one)) for one in (first, second)]
    assert "server=on" in lines[0]
    assert "server=off" in lines[1]
    assert "hostfwd=tcp:127.0.0.1:40000-:22" in lines[0]
    assert "net=10.7.1.0/24" in lines[0], "the ways to the control node must not look like a common network"
    assert "net=10.7.2.0/24" in lines[1]
    assert len({word for line in lines for word in line.split(",") if word.startswith("mac=")}) == 4


def test_one_machine_has_no_cable(tmp_path: Path) -> None:
    (only,) = vm_lab.machines(Lab(tmp_path, "x"), state(1))
    assert "id=cable" not in " ".join(machine.words(only))


def test_a_machine_learns_who_it_is_at_its_first_boot(tmp_path: Path) -> None:
    one = vm_lab.machines(Lab(tmp_path, "x"), state())[1]
    key = tmp_path / "host_key"
    key.write_text("private\n")
    key.with_suffix(".pub").write_text("public\n")
    with tarfile.open(fileobj=io.BytesIO(machine.seed(one, key, "ours\n", None))) as archive:
        members = {member.name: member for member in archive.getmembers()}

        def text(name: str) -> str:
            handle = archive.extractfile(name)
            return handle.read().decode() if handle else ""

        assert text("etc/hostname") == "n2\n"
        assert "10.9.0.2/24" in text("etc/systemd/network/20-cable.network")
        assert members["etc/ssh/ssh_host_ed25519_key"].mode == 0o600
        assert "etc/apt/apt.conf.d/00gpuops-lab" not in members


def test_ssh_finds_the_forwarded_ports(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "x")
    lab.write(state())
    assert lab.read() == state()
    assert "Host n2\n  HostName 127.0.0.1\n  Port 40001\n" in nodes.ssh_config(lab, state())
    found = inventory.inventory(tmp_path, "x")
    assert found["_meta"]["hostvars"]["n1"]["ansible_port"] == 40000
    assert found["gpu_nodes"]["hosts"] == ["n1", "n2"]
    assert found["slurm_controllers"]["hosts"] == []


def test_a_process_is_ours_only_when_it_says_so(tmp_path: Path) -> None:
    one = machine.Machine("n1", 1, 1, tmp_path)
    assert machine.pid(one) is None
    one.pid_file.write_text("1\n")
    assert machine.pid(one) is None, "init has another command line"
    one.pid_file.write_text("rubbish\n")
    assert machine.pid(one) is None


def test_what_qemu_says_when_it_does_not_start_is_passed_on(tmp_path: Path) -> None:
    words = (sys.executable, "-c", "import sys; sys.exit('no such device')")
    one = machine.Machine("n1", 1, 1, tmp_path, qemu=words)
    one.disk.touch()
    with pytest.raises(LabError, match="no such device"):
        machine.start(one, tmp_path / "base")
