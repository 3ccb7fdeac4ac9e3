# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's hosts: created in parallel, waited for, and made reachable by ssh with verified host keys."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import cache as apt_cache
from . import network
from .paths import Lab, LabError, State
from .podman import Podman

PATIENCE = 300  # seconds for a host to boot, on a machine that is busy with other labs
# A privileged host sees this machine's devices. They are not its own: going through all of them at boot is left out.
MASKED = ("systemd-udev-trigger.service", "e2scrub_reap.service")
ARTIFACTS = "/srv/gpuops-lab"
SHARED = "/srv/gpuops-shared"  # one directory of all hosts, as a file server's would be
SMALL = "/srv/gpuops-small"  # a disk that is soon full
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
CA_IN_NODE = "/usr/local/lib/gpuops-lab/ca-certificates.crt"
# What a container runtime withholds from root but real servers have: device files, ping, ssh's audit records.
CAPABILITIES = ("MKNOD", "NET_RAW", "AUDIT_WRITE")

# Runs in each host: wait for systemd, then make the host reachable and its downloads cached. Prints its public keys.
BOOT = """\
end=$(($(date +%s) + {patience}))
until state=$(systemctl is-system-running 2>/dev/null); [ "$state" = running ] || [ "$state" = degraded ]; do
  [ "$(date +%s)" -lt $end ] || {{
    echo "systemd is still '$state' after {patience} s" >&2
    systemctl list-jobs --no-legend >&2; systemctl list-units --failed --no-legend >&2; exit 1; }}
  sleep 0.5
done
set -e
umask 022
printf '127.0.0.1 localhost\\n%s %s\\n::1 localhost ip6-localhost ip6-loopback\\n' {address} {host} > /etc/hosts
mkdir -p -m 700 /root/.ssh
echo {public_key} > /root/.ssh/authorized_keys
chmod 600 /root/.ssh/authorized_keys
mkdir -p /usr/local/lib/gpuops-lab
printf %s {proxy_script} > /usr/local/lib/gpuops-lab/apt-proxy
chmod 755 /usr/local/lib/gpuops-lab/apt-proxy
cat > /etc/apt/apt.conf.d/00gpuops-lab <<X
Acquire::http::Proxy-Auto-Detect "/usr/local/lib/gpuops-lab/apt-proxy";
Acquire::Languages "none";
X
[ ! -e {ca} ] || printf '[global]\\ncert = %s\\n' {ca} > /etc/pip.conf
find /var/lib/apt/lists -mindepth 1 -delete
touch -d @0 /var/lib/apt/lists
{setup}
cat /etc/ssh/ssh_host_*_key.pub
"""


def simulator() -> Any:
    """The module that simulates GPUs; loaded only where GPUs are wanted."""
    return importlib.import_module("tests.lab.gpu.simulate")


def run_words(lab: Lab, state: State, host: str, network_name: str, extra: list[str]) -> list[str]:
    """`podman run` for one host."""
    # A reboot inside ends the container; podman starts it again, as a machine would.
    words = ["run", "-d", "--restart=always", "--systemd=always", "--no-hosts"]
    words += ["--name", state.container(host), "--hostname", host]
    words += ["--network", f"{network_name}:ip={state.hosts[host]},alias={host}"]
    words += ["--privileged"] if state.options.privileged else [f"--cap-add={','.join(CAPABILITIES)}"]
    for unit in MASKED:
        words += ["-v", f"/dev/null:/etc/systemd/system/{unit}:ro"]
    words += ["--shm-size", "2g", "-v", f"{lab.cache}/artifacts:{ARTIFACTS}:ro"]
    words += ["-v", f"{lab.directory}/shared:{SHARED}", "--tmpfs", f"{SMALL}:rw,size=16m,mode=0755"]
    if CA_BUNDLE.exists():
        words += ["-v", f"{CA_BUNDLE.resolve()}:{CA_IN_NODE}:ro"]
    return [*words, *extra, state.image]


def create(podman: Podman, lab: Lab, state: State, host: str) -> list[list[str]]:
    """Create one host; returns the commands that its simulated hardware wants run inside."""
    directory = lab.directory / host
    directory.mkdir(parents=True, exist_ok=True)
    (lab.directory / "shared").mkdir(exist_ok=True)
    extra: list[str] = []
    setup: list[list[str]] = []
    if host != "ctl" and state.options.gpus != "none":
        simulation = simulator().prepare(state.options.gpus, state.options.suite, directory, lab.cache)
        extra, setup = list(simulation.podman_args), list(simulation.setup)
    podman.call(*run_words(lab, state, host, network.full_name(podman, lab.name), extra))
    return setup


def boot(podman: Podman, lab: Lab, state: State, host: str, proxy: str, setup: list[list[str]]) -> str:
    """Wait until a host has booted and make it ours; returns its lines for known_hosts."""
    script = BOOT.format(
        patience=PATIENCE,
        address=state.hosts[host],
        host=host,
        public_key=shlex.quote(lab.key.with_suffix(".pub").read_text().strip()),
        proxy_script=shlex.quote(apt_cache.PROXY_SCRIPT.format(address=proxy, port=apt_cache.PORT)),
        ca=CA_IN_NODE,
        setup="\n".join(shlex.join(command) for command in setup),
    )
    try:
        keys = podman.call("exec", "-i", state.container(host), "sh", stdin=script).stdout
    except LabError as error:
        said = podman.call("logs", "--tail", "5", state.container(host), check=False)
        raise LabError(f"{host} did not come up: {error}\n{said.stdout}{said.stderr}".strip()) from error
    lines = [line for line in keys.splitlines() if line.startswith(("ssh-", "ecdsa-"))]
    return "".join(f"{host},{state.hosts[host]} {' '.join(line.split()[:2])}\n" for line in lines)


def start(podman: Podman, lab: Lab, state: State, proxy: str) -> None:
    """Create all hosts but ctl, which is there, boot all, write known_hosts and ssh_config, log in to each once."""
    make_key(lab)

    def bring_up(host: str) -> str:
        setup = [] if host == "ctl" else create(podman, lab, state, host)
        try:
            return boot(podman, lab, state, host, proxy, setup)
        except LabError as error:
            print(f"\n  {error}\n  {host} is made once more", flush=True)
            podman.remove(state.container(host))
            return boot(podman, lab, state, host, proxy, create(podman, lab, state, host))

    with ThreadPoolExecutor(max_workers=min(8, 2 * (os.cpu_count() or 1))) as pool:
        lines = list(pool.map(bring_up, state.hosts))
        lab.known_hosts.write_text("".join(lines))
        lab.ssh_config.write_text(ssh_config(lab, state))
        list(pool.map(lambda host: _login(lab, host), state.hosts))


def make_key(lab: Lab) -> None:
    if not lab.key.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"gpuops-lab-{lab.name}", "-f", str(lab.key)]
        subprocess.run(command, check=True)


def ssh_config(lab: Lab, state: State) -> str:
    common = f"""\
Host *
  User root
  IdentityFile {lab.key}
  IdentitiesOnly yes
  UserKnownHostsFile {lab.known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR
"""
    own = (
        f"Host {host}\n  HostName {address}\n  Port {state.ports.get(host, 22)}\n"
        for host, address in state.hosts.items()
    )
    return "".join(own) + common


def ssh_words(lab: Lab, host: str, *command: str) -> list[str]:
    return ["ssh", "-F", str(lab.ssh_config), host, *command]


def _login(lab: Lab, host: str) -> None:
    words = ["timeout", str(PATIENCE), *ssh_words(lab, host, "true")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{host} runs but ssh does not let us in: {done.stderr.strip()}")
