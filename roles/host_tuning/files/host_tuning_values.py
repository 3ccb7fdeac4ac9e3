# Copyright: (c) 2026, the gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set kernel parameters and sysfs values and read them back, or ask for everything again. Prints one line of JSON.

Arguments: `apply` or `verify`, and a JSON object {sysctl: {key: value}, sysctl_file, sysfs: [{name, files, value}],
memlock, nofile, nofile_soft, limits: {memlock, nofile}, parameters, check}.

apply  -> {changed, skipped, reexec}. With `check` it says what it would change and writes nothing.
verify -> {failures, notes, parameters_missing}
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
from typing import Any

SYSCTL_DIRS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
DOTS_AND_SLASHES = str.maketrans("./", "/.")


def read(path: str) -> str:
    """Text of a file, empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run(*argv: str) -> str:
    """What a command prints; empty where there is no such command."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def sysctl_path(key: str) -> str:
    """The file of a parameter. The first separator decides: net.ipv4.conf.eth0/1.mtu is net/ipv4/conf/eth0.1/mtu."""
    first = re.search(r"[./]", key)
    return "/proc/sys/" + (key if first and first.group() == "/" else key.translate(DOTS_AND_SLASHES))


def current(path: str) -> str:
    """The value in a file; of a list of choices the one in brackets."""
    text = " ".join(read(path).split())
    chosen = re.search(r"\[([^]]+)\]", text)
    return chosen.group(1) if chosen else text


def write(path: str, value: str, check: bool) -> str:
    """Write a value, or in check mode only open the file. Returns the kernel's words if it refuses."""
    try:
        file = os.open(path, os.O_WRONLY | (0 if check else os.O_TRUNC))
        try:
            if not check:
                os.write(file, value.encode())
        finally:
            os.close(file)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def settle(name: str, paths: list[str], value: str, check: bool) -> tuple[list[str], list[str]]:
    """Bring files to a value. Returns lines about what changed and about what was refused."""
    differing = [path for path in paths if current(path) != value]
    if not paths:
        return [], [f"{name}: this kernel has none"]
    if not differing:
        return [], []
    before = current(differing[0])
    for path in differing:
        refused = write(path, value, check)
        if not refused and not check and current(path) != value:
            refused = f"the kernel made it {current(path)}"
        if refused:
            return [], [f"{name} = {value} (is {before}): {refused}"]
    return [f"{name}: {before} -> {value}"], []


def settings(request: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    """All (name, files, value) of this request."""
    paths = {key: sysctl_path(key) for key in request["sysctl"]}
    kernel = [
        (key, [paths[key]] if os.path.exists(paths[key]) else [], " ".join(str(value).split()))
        for key, value in request["sysctl"].items()
    ]
    return kernel + [(item["name"], sorted(glob.glob(item["files"])), item["value"]) for item in request["sysfs"]]


def overrides(request: dict[str, Any]) -> list[str]:
    """Other files that set one of our parameters to another value later at boot, in systemd-sysctl's order."""
    files: dict[str, str] = {}
    for folder in SYSCTL_DIRS:
        for path in glob.glob(f"{folder}/*.conf"):
            files.setdefault(os.path.basename(path), path)
    ours = os.path.basename(request["sysctl_file"])
    wanted = {sysctl_path(key): (key, " ".join(str(value).split())) for key, value in request["sysctl"].items()}
    found = []
    for name in sorted(name for name in files if name > ours):
        for line in read(files[name]).splitlines():
            key, equals, value = line.strip().lstrip("-").partition("=")
            hit = wanted.get(sysctl_path(key.strip())) if equals and key[:1] not in "#;" else None
            if hit and " ".join(value.split()) != hit[1]:
                found.append(f"{hit[0]} = {hit[1]}: {files[name]} makes it {value.strip()} at boot")
    return found


def tuned_profile() -> str:
    """The profile of a running tuned, which owns governor and huge pages."""
    return read("/etc/tuned/active_profile").strip() if run("systemctl", "is-active", "tuned") == "active" else ""


def manager_limits() -> list[str]:
    """systemd's own defaults for services: locked memory in bytes or infinity, open files soft and hard."""
    keys = ("DefaultLimitMEMLOCK", "DefaultLimitNOFILESoft", "DefaultLimitNOFILE")
    lines = run("systemctl", "show", *(f"--property={key}" for key in keys)).splitlines()
    shown = dict(line.split("=", 1) for line in lines if "=" in line)
    return [shown.get(key, "") for key in keys]


def apply(request: dict[str, Any]) -> dict[str, Any]:
    changed: list[str] = []
    skipped: list[str] = []
    profile = tuned_profile()
    owned = {item["name"] for item in request["sysfs"]} if profile else set()
    for name, paths, value in settings(request):
        done, refused = settle(name, paths, value, request["check"]) if name not in owned else ([], [])
        changed += done
        skipped += refused if name not in owned else [f"{name}: tuned owns it (profile {profile})"]
    memlock = request["memlock"]
    limits = ["infinity" if memlock == "unlimited" else str(int(memlock) * 1024)]
    limits += [str(request["nofile_soft"]), str(request["nofile"])]
    return {"changed": changed, "skipped": skipped + overrides(request), "reexec": manager_limits() != limits}


def service_limits() -> list[str]:
    """What a service that starts now really gets: locked memory in KiB, open files soft and hard."""
    asked = "ulimit -l; ulimit -Sn; ulimit -Hn"
    return run("systemd-run", "--wait", "--pipe", "--collect", "--quiet", "/bin/sh", "-c", asked).split()


def verify(request: dict[str, Any]) -> dict[str, Any]:
    """What the kernel refuses root is a note or was reported before; everything else that differs is a failure."""
    failures: list[str] = []
    notes: list[str] = []
    owned = {item["name"] for item in request["sysfs"]} if tuned_profile() else set()
    for name, paths, value in settings(request):
        wrong = [path for path in paths if current(path) != value and not write(path, value, True)]
        if wrong and name not in owned:
            failures.append(f"{name} is {current(wrong[0])}, not {value}")
    refused = request["limits"]
    limits = (
        ("memlock", str(request["memlock"]), refused["memlock"]),
        ("nofile (soft)", str(request["nofile_soft"]), refused["nofile"]),
        ("nofile", str(request["nofile"]), refused["nofile"]),
    )
    had = service_limits()
    if len(had) != len(limits):
        notes.append("limits of services: systemd-run started none to ask")
    for have, (name, wanted, why) in zip(had, limits):
        if have != wanted:
            line = f"{name} of services is {have}, not {wanted}"
            (notes if why else failures).append(f"{line}: {why}" if why else line)
    words = read("/proc/cmdline").split()
    missing = [f"kernel parameter {parameter}" for parameter in request["parameters"] if parameter not in words]
    return {"failures": failures, "notes": notes, "parameters_missing": missing}


if __name__ == "__main__":
    print(json.dumps({"apply": apply, "verify": verify}[sys.argv[1]](json.loads(sys.argv[2]))))
