"""Logins at the end of ssh_trust: an sshd that is only busy is asked again, one that refuses is not."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.module_utils import _ssh_logins
from ansible_collections.gpuops.cluster.plugins.modules import ssh_trust_logins

TARGET: dict[str, Any] = {"name": "no-such-host.invalid", "address": "192.0.2.1", "port": 22, "required": True}
BUSY = [
    "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.89.11.33 port 22",
    "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.89.11.10 port 22",
    "Connection timed out during banner exchange\nConnection to 10.89.11.10 port 22 timed out",
]
FINAL = [
    "root@n1: Permission denied (publickey).",
    "Host key verification failed.",
    "ssh: connect to host n1 port 22: Connection refused",
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


def answers(monkeypatch: pytest.MonkeyPatch, *texts: str) -> list[int]:
    """What ssh says, one a try; an empty text is a login. Returns a list that grows with each try."""
    left = list(texts)
    tries: list[int] = []

    def run(argv: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        tries.append(len(tries))
        text = left.pop(0) if len(left) > 1 else left[0]
        return subprocess.CompletedProcess(argv, 255 if text else 0, "", text)

    monkeypatch.setattr(subprocess, "run", run)
    return tries


def said(user: str, target: dict[str, Any]) -> str:
    result = _ssh_logins.try_login(user, target)
    return str(result["said"]) if result else ""


@pytest.mark.parametrize("text", BUSY)
def test_a_busy_sshd_is_asked_again(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tries = answers(monkeypatch, text, text, "")
    assert _ssh_logins.try_login("root", TARGET) is None
    assert len(tries) == 3


@pytest.mark.parametrize("text", FINAL)
def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tries = answers(monkeypatch, text, "")
    assert said("root", TARGET) == text
    assert len(tries) == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ssh_logins, "PATIENCE", 0.0)
    answers(monkeypatch, BUSY[0])
    assert "Connection closed by remote host" in said("root", TARGET)


def test_what_fails_counts_only_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, FINAL[2])
    other = {**TARGET, "name": "other.invalid", "required": False}
    found = _ssh_logins.try_all("n1", ["root", "alice"], [TARGET, other])
    assert found["tried"] == 4
    way = "n1 -> no-such-host.invalid (192.0.2.1 port 22)"
    assert found["failures"] == [f"{user}: {way}: {FINAL[2]}" for user in ("root", "alice")]
    assert [note.split(" (")[0] for note in found["notes"]] == [f"{u}: n1 -> other.invalid" for u in ("root", "alice")]


def test_nobody_to_try_is_no_failure() -> None:
    assert _ssh_logins.try_all("n1", ["root"], []) == {"tried": 0, "failures": [], "notes": []}


def run_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **target: Any) -> dict[str, Any]:
    given = {"name": "n1", "users": ["root"], "targets": [{**TARGET, **target}], "_ansible_check_mode": True}
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    with pytest.raises(SystemExit):
        ssh_trust_logins.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_module_fails_with_ssh_s_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, FINAL[0])
    failed = run_module(monkeypatch, capsys)
    assert failed["failed"] is True
    assert failed["msg"] == f"root: n1 -> no-such-host.invalid (192.0.2.1 port 22): {FINAL[0]}"
    noted = run_module(monkeypatch, capsys, required=False)
    assert "failed" not in noted and noted["changed"] is False and noted["notes"] == [failed["msg"]]
