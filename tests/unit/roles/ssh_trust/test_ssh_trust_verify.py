"""Logins at the end of ssh_trust: an sshd that is only busy is asked again, one that refuses is not."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[4] / "roles/ssh_trust/files/ssh_trust_verify.py"
TARGET = {"name": "no-such-host.invalid", "address": "192.0.2.1", "port": 22, "required": True}
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


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("ssh_trust_verify", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    return module


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


@pytest.mark.parametrize("text", BUSY)
def test_a_busy_sshd_is_asked_again(script: Any, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tries = answers(monkeypatch, text, text, "")
    assert script.try_login("root", TARGET) is None
    assert len(tries) == 3


@pytest.mark.parametrize("text", FINAL)
def test_a_refusal_is_final(script: Any, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tries = answers(monkeypatch, text, "")
    assert script.try_login("root", TARGET)["said"] == text
    assert len(tries) == 1


def test_patience_ends(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PATIENCE", 0.0)
    answers(monkeypatch, BUSY[0])
    assert "Connection closed by remote host" in script.try_login("root", TARGET)["said"]
