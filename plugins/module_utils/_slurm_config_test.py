# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a scratch slurmctld whether it starts with a configuration, before the real one gets it. Private."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# The scratch daemon neither talks to nodes and database nor runs programs, and keeps its state to itself.
_LEFT_OUT = """
accountingstorageenforce accountingstoragehost accountingstoragebackuphost accountingstorageparameters
accountingstorageport accountingstoragetres accountingstoragetype accountingstorageuser accountingstoragepass
slurmctldport slurmctldpidfile slurmctldlogfile slurmctldsyslogdebug slurmschedlogfile statesavelocation slurmdport
healthcheckprogram healthcheckinterval healthchecknodestate prologslurmctld epilogslurmctld
jobcomptype jobcomploc jobcomphost jobsubmitplugins
slurmctldprimaryonprog slurmctldprimaryoffprog resumeprogram suspendprogram
"""
LEFT_OUT = frozenset(_LEFT_OUT.split())
# What the scratch daemon says because of that, or what is no reason to refuse.
_NOISE = re.compile(r"accounting_storage/none|but not stored|MailProg|PMIx|pmix")
_UP = "Running as primary controller"


def scratch_text(text: str, directory: str, port: int) -> str:
    """The configuration without what could reach the real cluster. Only the first controller is kept."""
    kept, hosts = [], 0
    for line in text.splitlines():
        key = line.partition("=")[0].strip().lower()
        hosts += key == "slurmctldhost"
        if key in LEFT_OUT or (key == "slurmctldhost" and hosts > 1):
            continue
        kept.append(line)
    own = {
        "StateSaveLocation": directory,
        "SlurmctldPidFile": f"{directory}/pid",
        "SlurmctldPort": port,
        "SlurmdPort": 1,  # nobody listens there, so no node hears of the scratch daemon
        "AccountingStorageType": "accounting_storage/none",
    }
    return "\n".join([*kept, *(f"{key}={value}" for key, value in own.items())]) + "\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def complaint(program: str, files: dict[str, str], user: str, timeout: float = 20.0) -> str:
    """What slurmctld has against these files (slurm.conf and its companions), in its own words; empty if it starts."""
    directory = tempfile.mkdtemp(prefix="gpuops-slurm-")
    try:
        for name, text in files.items():
            with open(os.path.join(directory, name), "w", encoding="utf-8") as handle:
                handle.write(scratch_text(text, directory, _free_port()) if name == "slurm.conf" else text)
        shutil.chown(directory, user)
        return _run(
            [program, "-D", "-c", "-f", os.path.join(directory, "slurm.conf")], os.path.join(directory, "log"), timeout
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: list[str], log: str, timeout: float) -> str:
    with open(log, "w+", encoding="utf-8", errors="replace") as output:
        # No AnsibleModule is here to run it. pylint: disable-next=ansible-bad-function
        daemon = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                done = daemon.poll() is not None
                output.seek(0)
                text = output.read()
                if _UP in text:
                    return ""
                if done:
                    break
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
    lines = [re.sub(r"^(slurmctld: |\[\S+\] )+", "", line) for line in text.splitlines()]
    said = [line for line in lines if line.startswith(("error:", "fatal:")) and not _NOISE.search(line)]
    return "\n".join((said or lines or ["slurmctld says nothing and does not start"])[-8:])
