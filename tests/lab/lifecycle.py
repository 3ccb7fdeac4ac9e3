# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab as a whole: built in stages, judged, removed."""

from __future__ import annotations

import re
import shutil
import socket

from . import cache, host, image, network, nodes
from .paths import MACHINE, Lab, Options, State, locked
from .podman import Podman
from .stage import stage


def whole(podman: Podman, state: State) -> bool:
    """True when every host of a lab runs and answers on its ssh port."""
    if not podman.space.holder():
        return False
    found = podman.containers(f"gpuops-{state.name}-")
    if any(found.get(state.container(name)) != "running" for name in state.hosts):
        return False
    for address in state.hosts.values():
        try:
            socket.create_connection((address, 22), timeout=2).close()
        except OSError:
            return False
    return True


def clear(podman: Podman, lab: Lab) -> None:
    """Remove what there is of a lab, whole or half."""
    found = podman.containers(f"gpuops-{lab.name}-")
    found = {
        name: state
        for name, state in found.items()
        if re.fullmatch(r"(ctl|n\d+)", name.removeprefix(f"gpuops-{lab.name}-"))
    }
    if found:
        podman.remove(*found)
    network.remove(podman, lab.name)
    shutil.rmtree(lab.directory, ignore_errors=True)


def build(podman: Podman, lab: Lab, options: Options) -> None:
    with locked(MACHINE / "lock"):
        with stage("packages of this machine"):
            host.install_missing(nodes.simulator().PACKAGES if options.gpus != "none" else {})
            host.prepare(MACHINE, privileged=options.privileged)
            podman.open()
        clear(podman, lab)
        with stage(f"base image {options.suite}"):
            base = image.ensure(podman, options.suite)
        with stage("package cache"):
            proxy = cache.ensure(podman, base)
        if options.gpus != "none":
            with stage("simulated GPUs"):
                nodes.simulator().build_library(lab.cache)
        subnet = network.create(podman, lab.name)
        state = State(lab.name, options, base, subnet, network.addresses(subnet, options.nodes))
        lab.write(state)
        (lab.cache / "artifacts").mkdir(exist_ok=True)
        nodes.create(podman, lab, state, "ctl")  # the bridge is there before another lab looks for a free subnet
    with stage(f"{len(state.hosts)} hosts on {subnet}"):
        nodes.start(podman, lab, state, proxy)
    state.complete = True
    lab.write(state)
