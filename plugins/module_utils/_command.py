# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a tool that may hang: a time limit, a size limit, and the whole process group killed at the end of either."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTPUT_LIMIT = 4 * 1024 * 1024  # bytes kept of each stream; a report of 16 GPUs has less than one megabyte
CHUNK = 64 * 1024
# A tool that has ended but left its pipe open in a child of its own is not waited for.
GRACE_AFTER_EXIT = 0.3
# A process in uninterruptible sleep (a sick driver) survives SIGKILL. It is left behind rather than waited for.
GRACE_AFTER_KILL = 1.0


@dataclass
class Answer:
    """What a tool said.

    ``rc`` is null when it did not start or had to be killed; ``failure`` then says why, in one sentence.
    """

    rc: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    failure: str = ""

    def text(self) -> str:
        """Both streams as text, whatever bytes they hold."""
        return b"\n".join(part for part in (self.stdout, self.stderr) if part).decode("utf-8", "replace")


@dataclass
class _Running:
    """One started tool, and what it has said so far."""

    process: subprocess.Popen[bytes]
    streams: dict[int, bytearray] = field(default_factory=dict)
    open_streams: int = 2
    exited_at: float | None = None
    oversized: bool = False

    def finished(self, now: float) -> bool:
        if self.open_streams == 0 or self.oversized:
            return True
        if self.exited_at is None and self.process.poll() is not None:
            self.exited_at = now
        return self.exited_at is not None and now - self.exited_at > GRACE_AFTER_EXIT


def _start(argv: Sequence[str]) -> _Running:
    # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LC_ALL="C"),
        start_new_session=True,
    )
    return _Running(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the tool with all its children, and give up on what the kernel cannot kill."""
    with contextlib.suppress(OSError):  # gone already
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_AFTER_KILL)


def _collect(running: _Running, deadline: float) -> bool:
    """Read until the tool is done; false when the deadline came first."""
    with selectors.DefaultSelector() as selector:
        for stream in filter(None, (running.process.stdout, running.process.stderr)):
            os.set_blocking(stream.fileno(), False)
            running.streams[stream.fileno()] = bytearray()
            selector.register(stream, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if running.finished(now):
                return True
            if now >= deadline:
                return False
            for key, _events in selector.select(min(deadline - now, 0.1)):
                chunk = os.read(key.fd, CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                    running.open_streams -= 1
                    continue
                running.streams[key.fd] += chunk
                running.oversized = running.oversized or len(running.streams[key.fd]) > OUTPUT_LIMIT


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def run(argv: Sequence[str], timeout: float) -> Answer:
    """Run ``argv`` without a shell for at most ``timeout`` seconds. Never raises for what the tool does."""
    deadline = time.monotonic() + timeout
    try:
        running = _start(argv)
    except (OSError, ValueError) as error:
        return Answer(failure=f"{argv[0]} could not be started: {getattr(error, 'strerror', None) or error}")
    process = running.process
    in_time = _collect(running, deadline)
    if in_time and not running.oversized:
        try:  # the pipes are closed: the end is a matter of moments, and of the time limit
            process.wait(max(deadline - time.monotonic(), GRACE_AFTER_EXIT))
        except subprocess.TimeoutExpired:
            in_time = False
    rc = process.poll()
    _kill(process)
    stdout, stderr = (bytes(content[:OUTPUT_LIMIT]) for content in running.streams.values())
    _close(process)
    answer = Answer(rc=rc if in_time else None, stdout=stdout, stderr=stderr, timed_out=not in_time)
    call = " ".join(argv)
    if not in_time:
        answer.failure = f"{call} gave no answer within {timeout:g} s"
    elif running.oversized:
        answer.rc = None
        answer.failure = f"{call} printed more than {OUTPUT_LIMIT} bytes"
    return answer
