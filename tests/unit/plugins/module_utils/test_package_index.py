"""When package lists have to be fetched, and how: with other apts about, over networks that fail at times."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _package_index as index

DAY = 86400.0


@pytest.fixture
def places(tmp_path: Path) -> index.Places:
    """Lists that were fetched a moment after the sources were written."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/distribution.sources").touch()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/mirror_dists_stable_main_binary-amd64_Packages.lz4").touch()
    os.utime(tmp_path / "lists", (time.time() + 5, time.time() + 5))
    return index.Places(str(tmp_path / "lists"), str(tmp_path / "stamp"), str(tmp_path / "sources.list"))


def test_fresh_lists_stay(places: index.Places) -> None:
    assert index.reason(places, time.time(), DAY, check=False) == ""


@pytest.mark.parametrize("check", [False, True])
def test_empty_lists_are_fetched_whatever_their_date(places: index.Places, check: bool) -> None:
    for path in Path(places.lists).iterdir():
        path.unlink()
    (Path(places.lists) / "lock").touch()
    os.utime(places.lists, (time.time() + DAY, time.time() + DAY))
    assert index.reason(places, time.time(), DAY, check) == "there are none"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("deb http://mirror.example/debian stable main", "there are none"),
        ("deb [signed-by=/x.gpg] https://mirror.example/debian stable main", "there are none"),
        ("URIs: mirror+https://mirror.example/list", "there are none"),
        ("deb [signed-by=/x.gpg] file:///var/cuda-repo /", ""),
        ("# deb http://mirror.example/debian stable main", ""),
    ],
)
def test_lists_of_a_local_repository_do_not_stand_for_the_others(places: index.Places, line: str, why: str) -> None:
    for path in Path(places.lists).iterdir():
        path.rename(path.with_name("_var_cuda-repo_Packages"))
    Path(places.sources).write_text(line + "\n")
    os.utime(places.lists, (time.time() + 5, time.time() + 5))
    assert index.reason(places, time.time(), DAY, check=False) == why


def test_no_folder_is_like_an_empty_one(tmp_path: Path) -> None:
    assert index.reason(index.Places(lists=str(tmp_path / "none")), time.time(), DAY, check=False) == "there are none"


def test_old_lists_are_fetched_but_not_in_check_mode(places: index.Places) -> None:
    later = time.time() + 2 * DAY
    assert index.reason(places, later, DAY, check=False) == "they are older than 86400 s"
    assert index.reason(places, later, DAY, check=True) == ""
    Path(places.stamp).touch()
    os.utime(places.stamp, (later, later))
    assert index.reason(places, later, DAY, check=False) == ""


@pytest.mark.parametrize("name", ["sources.list", "sources.list.d/cuda.list", "sources.list.d/cuda.sources"])
def test_a_source_that_came_later_is_fetched_although_its_file_is_old(places: index.Places, name: str) -> None:
    os.utime(places.lists, (time.time() - 5, time.time() - 5))
    (Path(places.sources).parent / "sources.list.d/distribution.sources").unlink()
    path = Path(places.sources).parent / name
    path.touch()
    os.utime(path, (0, 0))
    assert index.reason(places, time.time(), DAY, check=False) == f"{path} is newer"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\nE: Unable to lock",
            "Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)",
        ),
        ("W: Failed to fetch http://mirror/  Temporary failure resolving 'mirror'", ""),
        ("", ""),
    ],
)
def test_a_lock_is_told_from_other_trouble(words: str, found: str) -> None:
    assert index.locked(words) == found


LOCK = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
NET = "W: Failed to fetch http://mirror.example/  Temporary failure resolving 'mirror.example'"
GOOD = (0, "", "")


class Apt:
    """Answers of apt-get, one a call; the last one for ever."""

    def __init__(self, *answers: tuple[int, str, str]) -> None:
        self.answers = list(answers)
        self.calls = 0

    def __call__(self, argv: list[str], **_options: Any) -> tuple[int, str, str]:
        assert argv[0] == "apt-get"
        self.calls += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        ([GOOD], 1),
        ([(100, "", LOCK), (100, "", LOCK), (100, "", LOCK), (100, "", LOCK), GOOD], 5),
        ([(0, "", NET), GOOD], 2),
        ([(100, "", "E: The repository 'x' does not have a Release file."), GOOD], 2),
    ],
)
def test_what_passes_is_waited_for(answers: list[tuple[int, str, str]], calls: int) -> None:
    apt = Apt(*answers)
    assert index.update(apt, 60) == ""
    assert apt.calls == calls


def test_a_lock_that_stays_is_said_with_its_holder() -> None:
    assert "held by process 7 (apt-get)" in index.update(Apt((100, "", LOCK)), 0)


def test_a_mirror_that_stays_away_is_said_in_apts_words() -> None:
    apt = Apt((0, "", NET))
    assert index.update(apt, 60) == NET
    assert apt.calls == index.TRIES


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("site.list", "deb [arch=amd64 signed-by={key}] http://mirror.example/site /"),
        ("site.list", "deb [signed-by={key},/b.gpg] http://mirror.example/site /"),
        ("site.sources", "URIs: http://mirror.example/site\nSigned-By: {key}"),
    ],
)
def test_what_was_fetched_with_another_key_is_fetched_again(places: index.Places, name: str, text: str) -> None:
    key = Path(places.sources).parent / "site.gpg"
    source = Path(places.sources).parent / "sources.list.d" / name
    source.write_text(text.format(key=key) + "\n")
    key.touch()
    since = max(path.stat().st_ctime for path in (source, *source.parent.iterdir()))
    os.utime(places.lists, (since, since))
    assert index.reason(places, time.time(), DAY, check=False) == ""
    while key.stat().st_ctime <= since:
        key.touch()
    assert index.reason(places, time.time(), DAY, check=False) == f"{key} is newer"


@pytest.mark.parametrize(
    ("names", "is_so"), [([], False), (["tmp.i"], False), (["0001"], True), (["tmp.i", "0012"], True)]
)
def test_what_dpkg_has_not_noted_yet_says_that_it_was_interrupted(
    tmp_path: Path, names: list[str], is_so: bool
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert index.interrupted(index.Places(journal=str(tmp_path))) is is_so
    assert not index.interrupted(index.Places(journal=str(tmp_path / "none")))


LOCKED = "dpkg: error: dpkg frontend lock was locked by another process with pid 4711"
BROKEN = "dpkg: error processing package vim-runtime (--configure): package is in a very bad inconsistent state"


@pytest.mark.parametrize(
    ("answers", "patience", "said"),
    [
        ([(0, "", "")], 5, ""),
        ([(2, "", LOCKED), (0, "", "")], 5, ""),
        ([(2, "", LOCKED)], -1, LOCKED),
        ([(1, "", BROKEN)], 5, ""),
    ],
)
def test_dpkg_finishes_once_nobody_else_is_at_it(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, str, str]], patience: float, said: str
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    left = list(answers)

    def run(command: list[str], environ_update: dict[str, str]) -> tuple[int, str, str]:
        assert command == ["dpkg", "--configure", "--pending"]
        assert environ_update["DEBIAN_FRONTEND"] == "noninteractive"
        return left.pop(0)

    assert index.finish(run, patience) == said
    assert not left
