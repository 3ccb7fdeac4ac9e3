"""The first look at a host: a real shell answers it, and hostile answers do no harm."""

from __future__ import annotations

import subprocess
import time

from ansible_collections.gpuops.cluster.plugins.module_utils import _host_probe
from hypothesis import given
from hypothesis import strategies as st


def test_a_real_shell_answers_every_question() -> None:
    started = time.time()
    text = subprocess.run(
        ["sh", "-c", _host_probe.command("python3", ["localhost", "no-such-name.invalid"])],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    probe = _host_probe.parse(text, started, time.time())
    assert probe["hostname"] and probe["machine"] and probe["kernel"] and probe["os"]["id"] and probe["os"]["version"]
    assert probe["python"].startswith("3.")
    assert probe["free_mib"]["/"] > 0
    assert probe["resolves"]["no-such-name.invalid"] == []
    assert probe["resolves"]["localhost"]
    assert abs(probe["clock_offset_s"]) <= probe["clock_error_s"] + 0.01


def test_no_python_is_told() -> None:
    text = subprocess.run(
        ["sh", "-c", _host_probe.command("/nonexistent/python", [])], capture_output=True, text=True, check=True
    ).stdout
    assert _host_probe.parse(text, 0, 0)["python"] is None


def test_a_name_cannot_become_a_command() -> None:
    text = subprocess.run(
        ["sh", "-c", _host_probe.command("python3; echo oops=1", ["$(echo oops=2)"])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "oops=1" not in text.splitlines()
    assert not any(line.startswith("oops=") for line in text.splitlines())


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    probe = _host_probe.parse(text, 1.0, 2.0)
    assert probe["clock_error_s"] == 0.5
