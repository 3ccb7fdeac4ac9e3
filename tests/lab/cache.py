# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package downloads are kept between runs: apt-cacher-ng in a container of its own, reached by every lab."""

from __future__ import annotations

import os
import shutil
import subprocess

from . import network
from .paths import LabError
from .podman import Podman

NAME = "gpuops-apt-cache"
PORT = 3142

# Nodes ask this script before each download: the cache when it answers, else the mirror itself.
PROXY_SCRIPT = """\
#!/bin/bash
if timeout 1 bash -c '</dev/tcp/{address}/{port}' 2>/dev/null; then echo http://{address}:{port}/; else echo DIRECT; fi
"""


def configuration(upstream: str | None) -> str:
    """apt-cacher-ng's settings: a plain proxy, no rewriting of mirror names, errors not cached."""
    lines = [
        "CacheDir: /var/cache/apt-cacher-ng",
        "LogDir: /var/log/apt-cacher-ng",
        "SupportDir: /usr/lib/apt-cacher-ng",
        f"Port: {PORT}",
        "ForeGround: 1",
        "AllowUserPorts: 0",
        "PassThroughPattern: .*",
        "ExThreshold: 30",
        "VerboseLog: 0",
    ]
    return "\n".join([*lines, *([f"Proxy: {upstream}"] if upstream else [])]) + "\n"


def upstream_proxy() -> str | None:
    """The HTTP proxy that this machine uses for packages, if any."""
    if os.environ.get("http_proxy"):
        return os.environ["http_proxy"]
    if not shutil.which("apt-config"):
        return None
    words = ["apt-config", "shell", "P", "Acquire::http::Proxy"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    value = done.stdout.strip().partition("=")[2].strip("'\"")
    return value if value.startswith("http") else None


def ensure(podman: Podman, base: str) -> str:
    """Start the cache unless it runs; returns its address."""
    found = address(podman)
    if found:
        return found
    remove(podman)
    network.create(podman, "apt-cache")
    image = _image(podman, base)
    directory = podman.cache / "apt"
    (directory / "packages").mkdir(parents=True, exist_ok=True)
    (directory / "etc").mkdir(exist_ok=True)
    (directory / "etc" / "acng.conf").write_text(configuration(upstream_proxy()))
    podman.call(
        "run", "-d", "--name", NAME, "--network", network.full_name(podman, "apt-cache"), "--stop-timeout", "2",
        "-v", f"{directory}/packages:/var/cache/apt-cacher-ng", "-v", f"{directory}/etc:/etc/gpuops-lab:ro",
        image, "apt-cacher-ng", "-c", "/etc/gpuops-lab",
    )  # fmt: skip
    found = address(podman)
    if not found:
        raise LabError(f"the package cache did not stay up: {podman.call('logs', NAME, check=False).stderr.strip()}")
    return found


def address(podman: Podman) -> str | None:
    """The running cache's address."""
    template = "{{.State.Running}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    words = podman.call("inspect", "--format", template, NAME, check=False).stdout.split()
    return words[1] if len(words) == 2 and words[0] == "true" else None


def _image(podman: Podman, base: str) -> str:
    """apt-cacher-ng on top of whichever base image was there first."""
    tag = "localhost/gpuops-apt-cache:1"
    if not podman.image_exists(tag):
        build = f"{NAME}-build"
        podman.remove(build)
        script = (
            "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update"
            " && apt-get -qq install -y --no-install-recommends apt-cacher-ng"
            " && rm -rf /var/lib/apt/lists/* && apt-get clean"
        )
        podman.call(
            "run", "--name", build, "--network", network.full_name(podman, "apt-cache"), base, "sh", "-c", script
        )
        podman.call("commit", "-q", build, tag)
        podman.remove(build)
    return tag


def remove(podman: Podman) -> None:
    podman.remove(NAME)
    network.remove(podman, "apt-cache")
