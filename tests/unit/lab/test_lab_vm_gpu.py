"""The change that makes QEMU's edu device look like an H100: made in exactly one place each, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.paths import LabError
from tests.lab.vm import gpu
from tests.lab.vm import lab as vm_lab

IDS = bytes.fromhex("3412e811")
REST = bytes.fromhex("c680d400000010") + b"\x90" * 8 + bytes.fromhex("baff00000066" + "8990d6000000")
REGISTER = bytes.fromhex("b8ed000001")
FILLER = b"\xcc" * 32
PROGRAM = FILLER.join((b"", IDS, REST, REGISTER, b""))


def test_ids_class_revision_and_first_register_are_those_of_an_h100() -> None:
    made = gpu.patched(PROGRAM)
    assert len(made) == len(PROGRAM)
    assert bytes.fromhex("de103023") in made
    assert bytes.fromhex("c680d4000000a1") in made, "revision"
    assert bytes.fromhex("ba02030000") in made, "class"
    assert bytes.fromhex("b8a1000018") in made, "register"
    assert sum(a != b for a, b in zip(made, PROGRAM)) <= 4 + 1 + 2 + 4


@pytest.mark.parametrize("program", [PROGRAM.replace(IDS, FILLER), PROGRAM + REGISTER, b""])
def test_another_qemu_is_refused(program: bytes) -> None:
    with pytest.raises(LabError, match="built in another way"):
        gpu.patched(program)


def test_the_copy_is_made_once_and_again_for_another_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "qemu"
    program.write_bytes(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    first = gpu.qemu(tmp_path, "qemu")
    assert gpu.qemu(tmp_path, "qemu") == first
    assert Path(first[0]).read_bytes() == gpu.patched(PROGRAM)
    program.write_bytes(PROGRAM + FILLER)
    second = gpu.qemu(tmp_path, "qemu")
    assert second != first
    assert not Path(first[0]).exists()


@pytest.mark.parametrize(("profile", "count"), [("none", 0), ("h100x2", 2), ("h100x9", None), ("a100x4", None)])
def test_profiles_of_virtual_machines(profile: str, count: int | None) -> None:
    assert vm_lab.gpu_count(profile) == count
