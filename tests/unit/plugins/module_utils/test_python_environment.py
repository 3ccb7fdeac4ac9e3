# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments move: programs run at another path, an archive is taken only whole and only by the right Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _python_environment as environments
from ansible_collections.gpuops.cluster.plugins.module_utils._python_environment import (
    Environment,
    EnvironmentFailed,
    Source,
)
from ansible_collections.gpuops.cluster.plugins.module_utils._python_relocate import make_relocatable, relocatable

LOCK = "small==1.0 --hash=sha256:aa\n"
HOME = "/opt/envs/torch-0123456789ab"
SAYS = "import sys\nprint(sys.prefix, sys.argv[0])\n"


def run(command: list[str], handle_exceptions: bool = True, **_unused: Any) -> tuple[int, str, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def venv(home: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    return home


def program(home: Path, first_lines: str) -> Path:
    path = home / "bin/says"
    path.write_text(first_lines + SAYS)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "first_lines",
    [
        "#!{home}/bin/python3\n",
        "#!{home}/bin/own-python\n",
        "#!/bin/sh\n'''exec' \"{home}/bin/python3\" \"$0\" \"$@\"\n' '''\n",
    ],
    ids=["short", "by another name", "long"],
)
def test_a_program_runs_where_its_environment_was_moved_and_keeps_it_when_started_through_a_link(
    tmp_path: Path, first_lines: str
) -> None:
    home = venv(tmp_path / "before")
    program(home, first_lines.format(home=home))
    make_relocatable(home)
    moved = home.rename(tmp_path / "after")
    (tmp_path / "link").symlink_to("after")
    for start in (moved, tmp_path / "link"):
        prefix, started = run([str(start / "bin/says")])[1].split()
        assert prefix == str(moved)
        assert started == f"{start}/bin/says", "argv[0] is as it was typed"
    activated = run(["bash", "-c", f". {tmp_path}/link/bin/activate; echo $VIRTUAL_ENV; command -v python"])[1]
    assert activated.split() == [str(moved), f"{moved}/bin/python"]
    text = (moved / "bin/says").read_bytes()
    make_relocatable(moved)
    assert (moved / "bin/says").read_bytes() == text


LATE = """
import sys, subprocess
print(flush=True)
input()
import late
print(late.__file__, flush=True)
subprocess.run([sys.executable, "-c", "import late; print(late.__file__)"], check=True)
"""


def test_a_process_stays_in_its_environment_when_the_link_is_switched(tmp_path: Path) -> None:
    """Whatever it imports, and whatever it starts by sys.executable, as torchrun and multiprocessing do."""
    for name in ("old", "new"):
        home = venv(tmp_path / name)
        (next(home.glob("lib/python3*/site-packages")) / "late.py").touch()
        make_relocatable(home)
    link = tmp_path / "link"
    link.symlink_to("old")
    command = [str(link / "bin/python"), "-c", LATE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline()
        link.unlink()
        link.symlink_to("new")
        imported = process.communicate("\n")[0].split()
    assert len(imported) == 2
    assert all(path.startswith(f"{tmp_path}/old/lib/") for path in imported), imported
    assert run([str(link / "bin/python"), "-c", "import sys; print(sys.prefix)"])[1].strip() == f"{tmp_path}/new"


@pytest.mark.parametrize(
    "text",
    [
        b"#!/usr/bin/env bash\necho /opt/envs/torch-0123456789ab/bin/python\n",
        b"#!/opt/envs/torch-ffffffffffff/bin/python\n",
        b"\x7fELF #!/opt/envs/torch-0123456789ab/bin/python\n",
    ],
)
def test_other_programs_stay_as_they_are(text: bytes) -> None:
    assert relocatable(text, HOME) == text


def archive(tmp_path: Path, **stamp: Any) -> str:
    """An environment of LOCK as another host has packed it; `stamp` changes what that host wrote."""
    there = Environment(tmp_path / "there", "torch", LOCK, keep=1)
    venv(there.target)
    version = run([sys.executable, "-c", environments.ASK_VERSION])[1].strip()
    written = {"name": "torch", "lock_sha256": there.digest, "python": version, **stamp}
    (there.target / environments.STAMP).write_text(json.dumps(written))
    path = tmp_path / "torch.tar"
    subprocess.run(["tar", "-cf", str(path), "-C", str(there.root), there.target.name], check=True)
    return str(path)


def test_an_archive_becomes_the_environment(tmp_path: Path) -> None:
    here = Environment(tmp_path / "here", "torch", LOCK, keep=1)
    here.unpack(archive(tmp_path), run)
    assert here.is_complete()
    assert [path.name for path in here.root.iterdir()] == [here.target.name]
    assert run([str(here.target / "bin/python"), "-c", "import sys; print(sys.prefix)"])[1].strip() == str(here.target)


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ({"python": "3.1.9"}, "was made with Python 3.1.9; here its "),
        ({"lock_sha256": "another"}, "does not hold torch-"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path, stamp: dict[str, str], said: str) -> None:
    here = Environment(tmp_path / "here", "torch", LOCK, keep=1)
    with pytest.raises(EnvironmentFailed, match=said):
        here.unpack(archive(tmp_path, **stamp), run)
    assert list(here.root.iterdir()) == []


def test_half_an_archive_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = Path(archive(tmp_path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    here = Environment(tmp_path / "here", "torch", LOCK, keep=1)
    with pytest.raises(EnvironmentFailed, match="tar --extract"):
        here.unpack(str(path), run)
    assert list(here.root.iterdir()) == []


def test_an_interpreter_that_is_missing_on_this_host_is_named(tmp_path: Path) -> None:
    home = venv(tmp_path / "torch-0123456789ab")
    for name in ("python", "python3"):
        (home / "bin" / name).unlink(missing_ok=True)
        (home / "bin" / name).symlink_to("/usr/bin/python3.99")
    (home / environments.STAMP).write_text('{"python": "3.99.1"}')
    with pytest.raises(EnvironmentFailed, match=r"its /usr/bin/python3\.99 is missing or does not run"):
        environments.runs_here(home, run)


def test_a_full_disk_is_said_with_what_was_free(tmp_path: Path) -> None:
    here = Environment(tmp_path / "here", "torch", LOCK, keep=1)

    def full(command: list[str], **_unused: Any) -> tuple[int, str, str]:
        return (1, "", "ERROR: [Errno 28] No space left on device") if "pip" in command else run(command)

    with pytest.raises(EnvironmentFailed, match=rf"No space left on device\n{here.root} had \d+ MB free"):
        here.build(sys.executable, Source(), full)
    assert list(here.root.iterdir()) == []


def test_an_old_environment_that_a_process_uses_is_kept(tmp_path: Path) -> None:
    here = Environment(tmp_path / "envs", "torch", LOCK, keep=0)
    idle, busy = here.root / f"torch-{'0' * 12}", here.root / f"torch-{'1' * 12}"
    for home in (idle, busy):
        venv(home)
    command = [str(busy / "bin/python"), "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        assert here.superseded() == [idle]
        process.communicate(b"\n")
    assert sorted(here.superseded()) == [idle, busy]


def test_pip_and_uv_are_told_the_same_places() -> None:
    source = Source(index_url="https://mirror.example.org/simple", find_links=["/srv/wheels"])
    assert source.options("pip") == ["--find-links=/srv/wheels", "--index-url=https://mirror.example.org/simple"]
    assert source.options("uv") == ["--find-links=/srv/wheels", "--default-index=https://mirror.example.org/simple"]
    alone = Source(index_url="https://mirror.example.org/simple", find_links=["/srv/wheels"], no_index=True)
    assert alone.options("uv") == ["--no-index", "--find-links=/srv/wheels"]
