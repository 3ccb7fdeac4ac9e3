# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of `./run lab`."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from . import artifacts, cache, host, image, lifecycle, nodes
from .paths import MACHINE, Lab, LabError, Options, State, busy, cache_root, labs, locked
from .podman import Podman
from .stage import stage
from .vm import lab as vm_lab
from .vm.image import tag as vm_tag


def lab_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,30}", text):
        raise argparse.ArgumentTypeError(f"'{text}': lower-case letters, digits, hyphens and underscores, at most 31")
    return text


def node_count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 200:
        raise argparse.ArgumentTypeError(f"'{text}': a number from 1 to 200")
    return int(text)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./run lab", description="A disposable cluster of real Debian systems on this machine."
    )
    words = top.add_subparsers(dest="word", required=True, metavar="up|down|status|ssh|fault|artifacts")
    default = os.environ.get("GPUOPS_LAB_NAME", "lab")

    up = words.add_parser("up", help="bring a lab up, or reuse the one that is up with the same options")
    up.add_argument("--name", type=lab_name, default=default)
    up.add_argument("--nodes", type=node_count, default=2, metavar="N", help="GPU nodes n1..nN beside ctl (2)")
    up.add_argument("--gpus", default="h100x8", metavar="PROFILE", help="simulated GPUs of a node, or none (h100x8)")
    up.add_argument("--suite", choices=image.SUITES, default="bookworm", help="Debian release of all hosts (bookworm)")
    up.add_argument("--privileged", action="store_true", help="nodes may set the machine's sysctl and cgroups")
    up.add_argument("--vm", action="store_true", help="n1 and n2 as virtual machines, each with its own kernel; no ctl")
    up.add_argument("--artifacts", action="store_true", help="build what users bring along, too")

    down = words.add_parser("down", help="remove a lab and what it changed on this machine")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--name", type=lab_name, default=default)
    which.add_argument("--all", action="store_true", help="every lab of this cache directory")

    status = words.add_parser("status", help="what is up")
    status.add_argument("--name", type=lab_name)

    ssh = words.add_parser("ssh", help="log in to a host, or run a command there")
    ssh.add_argument("--name", type=lab_name, default=default)
    ssh.add_argument("host", metavar="HOST")
    ssh.add_argument("command", nargs=argparse.REMAINDER, metavar="command")

    fault = words.add_parser("fault", help="switch faults of a node's simulated GPUs on or off")
    fault.add_argument("--name", type=lab_name, default=default)
    fault.add_argument("host", metavar="NODE")
    fault.add_argument("--clear", action="store_true", help="healthy again")
    fault.add_argument("settings", nargs="*", metavar="key=value")

    built = words.add_parser("artifacts", help="build the stand-ins for what users bring along")
    built.add_argument("names", nargs="*", metavar="|".join(artifacts.NAMES))
    return top


def up(arguments: argparse.Namespace) -> int:
    root = cache_root()
    lab = Lab(root, arguments.name)
    options = Options(arguments.nodes, arguments.gpus, arguments.suite, arguments.privileged, arguments.vm)
    refusal = vm_lab.refusal(options) if options.vm else ""
    if refusal:
        print(f"lab: {refusal}", file=sys.stderr)
        return 2
    if not options.vm and options.gpus != "none" and options.gpus not in nodes.simulator().PROFILES:
        print(
            f"lab: --gpus {options.gpus}: expected none or one of {', '.join(nodes.simulator().PROFILES)}",
            file=sys.stderr,
        )
        return 2
    host.need_root(["up"])
    podman = Podman(root)
    with locked(lab.lock):
        state = lab.read()
        if state and state.options.vm != options.vm:
            raise LabError(f"lab {lab.name} is of the other kind; type: ./run lab down --name {lab.name}")
        tag = vm_tag(options.suite) if options.vm else image.tag(options.suite)
        if state and state.matches(options, tag) and whole(podman, lab, state):
            print(f"Lab {lab.name} is up.")
        elif options.vm:
            print(
                f"Lab {lab.name}: {options.nodes} virtual machine(s), {options.suite}, GPUs {options.gpus}", flush=True
            )
            vm_lab.build(lab, options)
        else:
            print(f"Lab {lab.name}: ctl and {options.nodes} node(s), {options.suite}, GPUs {options.gpus}", flush=True)
            lifecycle.build(podman, lab, options)
        if arguments.artifacts:
            artifacts.build(root, artifacts.NAMES)
    print(f"  log in:    ./run lab ssh{'' if lab.name == 'lab' else ' --name ' + lab.name} n1")
    prefix = "" if lab.name == "lab" else f"GPUOPS_LAB_NAME={lab.name} "
    print(f"  inventory: {prefix}ansible-playbook -i inventories/lab …")
    return 0


def whole(podman: Podman, lab: Lab, state: State) -> bool:
    return vm_lab.whole(lab, state) if state.options.vm else lifecycle.whole(podman, state)


def down(arguments: argparse.Namespace) -> int:
    host.need_root(["down"])
    root = cache_root()
    podman = Podman(root)
    for lab in labs(root) if arguments.all else [Lab(root, arguments.name)]:
        with locked(lab.lock), locked(MACHINE / "lock"):
            if lab.directory.exists():
                with stage(f"removing lab {lab.name}"):
                    vm_lab.stop(lab)
                    state = lab.read()
                    if state and state.options.vm:
                        lab.remove()
                    else:
                        podman.open()
                        lifecycle.clear(podman, lab)
    with locked(MACHINE / "lock"):
        if not labs(root) and podman.space.holder():
            with stage("undoing what the labs changed on this machine"):
                cache.remove(podman)
                podman.close()
                if not any(MACHINE.glob("*/holder")):
                    host.restore(MACHINE)
    return 0


def status(arguments: argparse.Namespace) -> int:
    root = cache_root()
    podman = Podman(root)
    found = [lab for lab in labs(root) if arguments.name in (None, lab.name)]
    if not found:
        print("No lab is up." if arguments.name is None else f"No lab {arguments.name} is up.")
        return 0 if arguments.name is None else 1
    for lab in found:
        state = lab.read()
        if busy(lab.lock) or not state:
            print(f"{lab.name}: {'being built or removed' if busy(lab.lock) else 'broken (up builds it anew)'}")
            continue
        word = "up" if state.complete and whole(podman, lab, state) else "broken (up builds it anew)"
        kind = "virtual machines, " if state.options.vm else ""
        print(f"{lab.name}: {word}, {kind}{state.options.suite}, GPUs {state.options.gpus}, {state.subnet}")
        for name, address in state.hosts.items():
            print(f"  {name:<5} {address}")
    return 0


def ssh(arguments: argparse.Namespace) -> int:
    lab, state = known(arguments.name, arguments.host)
    words = nodes.ssh_words(lab, arguments.host, *arguments.command)
    sys.stdout.flush()
    os.execvp(words[0], words)
    return int(bool(state))


def fault(arguments: argparse.Namespace) -> int:
    bad = [text for text in arguments.settings if "=" not in text]
    if bad or bool(arguments.settings) == arguments.clear:
        print(f"lab: fault needs key=value words or --clear{': ' + bad[0] if bad else ''}", file=sys.stderr)
        return 2
    lab, state = known(arguments.name, arguments.host)
    if arguments.host == "ctl" or state.options.gpus == "none" or state.options.vm:
        raise LabError(f"{arguments.host} has no simulated GPUs")
    settings = dict(text.split("=", 1) for text in arguments.settings)
    nodes.simulator().fault(lab.directory / arguments.host, settings)
    return 0


def known(name: str, host_name: str) -> tuple[Lab, State]:
    """The lab and its state, where it has that host."""
    lab = Lab(cache_root(), name)
    state = lab.read()
    if not state or not state.complete:
        raise LabError(f"lab {name} is not up; type: ./run lab up --name {name}")
    if host_name not in state.hosts:
        raise LabError(f"lab {name} has no host {host_name}: {', '.join(state.hosts)}")
    return lab, state


def build_artifacts(arguments: argparse.Namespace) -> int:
    unknown = [name for name in arguments.names if name not in artifacts.NAMES]
    if unknown:
        print(f"lab: no artifact {unknown[0]}: {', '.join(artifacts.NAMES)}", file=sys.stderr)
        return 2
    artifacts.build(cache_root(), arguments.names or artifacts.NAMES)
    return 0


def main(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    if arguments.word == "ssh" and arguments.command[:1] == ["--name"] and len(arguments.command) > 1:
        arguments.name, arguments.command = arguments.command[1], arguments.command[2:]
    command = {"up": up, "down": down, "status": status, "ssh": ssh, "fault": fault, "artifacts": build_artifacts}[
        arguments.word
    ]
    try:
        return command(arguments)
    except (LabError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except ValueError as error:  # a fault that there is not
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nlab: interrupted; the next up builds it anew", file=sys.stderr)
        return 130
