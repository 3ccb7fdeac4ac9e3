# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab of virtual machines as a whole: built, judged, removed. Its state is a State as containers have one."""

from __future__ import annotations

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from .. import cache, host, nodes
from ..paths import MACHINE, Lab, LabError, Options, State, locked
from ..stage import stage
from . import gpu, image, machine
from .machine import Machine

MOST = 2  # the cable has two ends, and more would wait for each other's emulation
BOOT_SECONDS = 900  # 30 on an idle machine


def machines(lab: Lab, state: State) -> list[Machine]:
    names = list(state.hosts)
    # A path below /run, since a socket's has at most 107 characters.
    link = MACHINE / f"vm-{lab.name}.sock" if len(names) > 1 else None
    count = gpu_count(state.options.gpus) or 0
    program = gpu.qemu(lab.cache, machine.QEMU) if count else (machine.QEMU,)
    return [
        Machine(name, number, state.ports[name], lab.directory / name, link, 2048, program, gpu.devices(count))
        for number, name in enumerate(names, start=1)
    ]


def whole(lab: Lab, state: State) -> bool:
    return all(machine.pid(one) and machine.answers(one) for one in machines(lab, state))


def gpu_count(profile: str) -> int | None:
    """How many cards a profile has; None where virtual machines have no such profile."""
    if profile == "none":
        return 0
    match = re.fullmatch(r"h100x([1-8])", profile)
    return int(match[1]) if match else None


def refusal(options: Options) -> str:
    """Why there is no such lab; empty where there is one."""
    if options.nodes > MOST:
        return f"--vm makes {MOST} virtual machines at most, not {options.nodes}"
    if options.privileged:
        return "--privileged is for containers: a virtual machine has a kernel of its own"
    if gpu_count(options.gpus) is None:
        return f"--vm has PCI devices like those of H100s; type: --gpus none, or h100x1 to h100x8, not {options.gpus}"
    return ""


def stop(lab: Lab) -> None:
    """Stop every machine that has left its process id, whether or not the state can be read."""
    for file in lab.directory.glob("*/qemu.pid"):
        machine.stop(Machine(file.parent.name, 0, 0, file.parent))
    (MACHINE / f"vm-{lab.name}.sock").unlink(missing_ok=True)


def build(lab: Lab, options: Options) -> None:
    MACHINE.mkdir(exist_ok=True)
    with locked(MACHINE / "lock"):
        with stage("packages of this machine"):
            host.install_missing(machine.NEEDED, containers=False)
        stop(lab)
        lab.remove()
    with locked(lab.cache / "locks" / "vm-image"), stage(f"disk with {options.suite}"):
        base = image.ensure(lab.cache, options.suite)
    names = [f"n{number}" for number in range(1, options.nodes + 1)]
    ports = {name: machine.free_port() for name in names}
    state = State(lab.name, options, image.tag(options.suite), "10.9.0.0/24", dict.fromkeys(names, "127.0.0.1"))
    state.ports = ports
    lab.write(state)
    nodes.make_key(lab)
    with stage(f"{len(names)} virtual machine(s)"):
        all_machines = machines(lab, state)
        for one in all_machines:
            prepare(lab, one)
            machine.start(one, base)
        with ThreadPoolExecutor(max_workers=MOST) as pool:
            list(pool.map(wait_for_boot, all_machines))
        lab.known_hosts.write_text("".join(known_host(one) for one in all_machines))
        lab.ssh_config.write_text(nodes.ssh_config(lab, state))
        for name in names:
            booted(lab, name)
    state.complete = True
    lab.write(state)


def prepare(lab: Lab, one: Machine) -> None:
    one.directory.mkdir(parents=True, exist_ok=True)
    key = one.directory / "host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", one.name, "-f", str(key)], check=True)
    authorized = lab.key.with_suffix(".pub").read_text()
    one.seed.write_bytes(machine.seed(one, key, authorized, cache.upstream_proxy()))


def known_host(one: Machine) -> str:
    public = (one.directory / "host_key.pub").read_text().split()
    return f"[127.0.0.1]:{one.port} {' '.join(public[:2])}\n"


def wait_for_boot(one: Machine) -> None:
    limit = time.monotonic() + BOOT_SECONDS
    while not machine.answers(one):
        if machine.pid(one) is None or time.monotonic() > limit:
            said = one.console.read_text(errors="replace") if one.console.exists() else ""
            raise LabError(f"{one.name} does not answer on its ssh port. Its console ends with:\n{said[-2000:]}")
        time.sleep(0.5)


def booted(lab: Lab, name: str) -> None:
    """Log in, and wait until its systemd has started everything."""
    words = nodes.ssh_words(lab, name, "systemctl is-system-running --wait; systemctl --failed --no-legend --plain")
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=BOOT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{name} runs, but its systemd has not finished after {BOOT_SECONDS} s") from error
    state, _newline, failed = done.stdout.partition("\n")
    if state != "running":
        raise LabError(f"{name} is '{state}': {failed.strip()} {done.stderr.strip()}")
