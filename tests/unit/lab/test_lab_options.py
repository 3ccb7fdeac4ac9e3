"""The words of ./run lab: defaults, refusals, and when a lab that is up is good enough."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from tests.lab import cli, inventory
from tests.lab.paths import Lab, Options, State, cache_root, run_root


def state(*, complete: bool = True) -> State:
    return State("x", Options(), "image:1", "10.89.3.0/24", {"ctl": "10.89.3.10", "n1": "10.89.3.11"}, complete)


def test_up_without_words_is_two_gpu_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUOPS_LAB_NAME", raising=False)
    words = cli.parser().parse_args(["up"])
    assert (words.name, words.nodes, words.gpus, words.suite, words.privileged) == (
        "lab",
        2,
        "h100x8",
        "bookworm",
        False,
    )


def test_the_environment_names_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUOPS_LAB_NAME", "mol-slurm")
    assert cli.parser().parse_args(["down"]).name == "mol-slurm"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fly",
        "up --nodes 0",
        "up --nodes many",
        "up --suite jessie",
        "up --name ../x",
        "up --gpus h100x9000",
        "down --all --name a",
        "fault n1",
        "fault n1 ecc",
        "fault n1 --clear ecc=1",
        "artifacts moon",
    ],
)
def test_what_it_does_not_know_ends_with_2(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        sys.exit(cli.main(line.split()))
    assert stop.value.code == 2


def test_a_lab_that_is_not_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path))
    assert cli.main(["ssh", "--name", "blue", "n1"]) == 1
    assert "blue" in capsys.readouterr().err


def test_bad_names_are_refused() -> None:
    for name in ("A", "-a", "a/b", "a b", "a" * 40, ""):
        with pytest.raises(argparse.ArgumentTypeError):
            cli.lab_name(name)


def test_a_lab_is_reused_only_when_whole_and_equal() -> None:
    assert state().matches(Options(), "image:1")
    assert not state(complete=False).matches(Options(), "image:1")
    assert not state().matches(Options(), "image:2")
    for other in (Options(nodes=3), Options(gpus="none"), Options(suite="trixie"), Options(privileged=True)):
        assert not state().matches(other, "image:1")


def test_state_survives_the_disk_and_damage_reads_as_no_lab(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "x")
    assert lab.read() is None
    lab.write(state())
    assert lab.read() == state()
    for damage in ('{"name": "x"}', "{", json.dumps({"options": {"colour": 1}})):
        (lab.directory / "state.json").write_text(damage)
        assert lab.read() is None


def test_two_caches_have_two_run_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path / "a"))
    assert cache_root() == tmp_path / "a"
    assert run_root(tmp_path / "a") != run_root(tmp_path / "b")


def test_the_inventory_verifies_host_keys(tmp_path: Path) -> None:
    Lab(tmp_path, "x").write(state())
    found = inventory.inventory(tmp_path, "x")
    assert found["gpu_nodes"]["hosts"] == ["n1"]
    assert found["slurm_controllers"]["hosts"] == ["ctl"]
    assert found["_meta"]["hostvars"]["n1"]["ansible_host"] == "10.89.3.11"
    assert "StrictHostKeyChecking=yes" in found["_meta"]["hostvars"]["n1"]["ansible_ssh_common_args"]
