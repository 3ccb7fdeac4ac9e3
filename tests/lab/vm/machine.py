# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine: QEMU's command line, its process, its first disk and what is told to it at its first boot."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import signal
import socket
import subprocess
import tarfile
import time
from pathlib import Path

from ..paths import LabError

QEMU = "qemu-system-x86_64"
MODULES = "/usr/lib/x86_64-linux-gnu/qemu"
# A file that must exist and the Debian package that brings it.
NEEDED: dict[str, tuple[str, ...]] = {
    "qemu-system-x86": (QEMU,),
    "qemu-utils": ("qemu-img",),
    "fdisk": ("sfdisk",),
    "e2fsprogs": ("mkfs.ext4",),
    "mmdebstrap": ("mmdebstrap",),
    "debian-archive-keyring": ("/usr/share/keyrings/debian-archive-keyring.gpg",),
    "openssh-client": ("ssh-keygen",),
}
# Software emulation: no machine that runs the tests has to offer KVM. An old CPU model is the quickest to emulate.
EMULATION = ("-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem", "-no-user-config")
QUIET = ("-display", "none", "-vga", "none", "-monitor", "none")


@dataclasses.dataclass(frozen=True)
class Machine:
    """One machine of a lab; `directory` holds its disk, its console's log and its process id."""

    name: str
    number: int  # 1, 2
    port: int  # of 127.0.0.1, forwarded to its port 22
    directory: Path
    link: Path | None = None  # socket of the cable to the other machine
    memory_mib: int = 2048
    qemu: tuple[str, ...] = (QEMU,)
    devices: tuple[str, ...] = ()  # more of QEMU's command line

    @property
    def disk(self) -> Path:
        return self.directory / "disk.qcow2"

    @property
    def seed(self) -> Path:
        return self.directory / "seed.tar"

    @property
    def pid_file(self) -> Path:
        return self.directory / "qemu.pid"

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    @property
    def fabric_address(self) -> str:
        return f"10.9.0.{self.number}"

    def mac(self, interface: int) -> str:
        return f"52:54:00:67:{interface:02x}:{self.number:02x}"


def words(machine: Machine) -> list[str]:
    """QEMU's command line."""
    subnet = f"10.7.{machine.number}.0/24"
    line = [*machine.qemu, "-name", machine.name, *EMULATION, *QUIET, "-smp", "2", "-m", str(machine.memory_mib)]
    line += ["-drive", f"file={machine.disk},if=virtio,cache=unsafe,discard=unmap"]
    line += ["-drive", f"file={machine.seed},if=virtio,format=raw,readonly=on"]
    line += ["-netdev", f"user,id=way,net={subnet},hostfwd=tcp:127.0.0.1:{machine.port}-:22"]
    line += ["-device", f"virtio-net-pci,netdev=way,mac={machine.mac(0)},romfile="]
    if machine.link:
        side = "on" if machine.number == 1 else "off"
        line += ["-netdev", f"stream,id=cable,server={side},addr.type=unix,addr.path={machine.link}"]
        line += ["-device", f"virtio-net-pci,netdev=cable,mac={machine.mac(1)},romfile="]
    line += ["-device", "virtio-rng-pci", "-serial", f"file:{machine.console}", "-pidfile", str(machine.pid_file)]
    return [*line, *machine.devices]


def seed(machine: Machine, host_key: Path, authorized: str, apt_proxy: str | None) -> bytes:
    """The tar that a machine unpacks at its first boot, padded to whole sectors."""
    way = f"[Match]\nMACAddress={machine.mac(0)}\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\n"
    cable = f"[Match]\nMACAddress={machine.mac(1)}\n[Network]\nAddress={machine.fabric_address}/24\n"
    hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.9.0.1 n1\n10.9.0.2 n2\n"
    files = {
        "etc/hostname": (0o644, f"{machine.name}\n"),
        "etc/hosts": (0o644, hosts),
        "etc/resolv.conf": (0o644, f"nameserver 10.7.{machine.number}.3\n"),
        "etc/ssh/ssh_host_ed25519_key": (0o600, host_key.read_text()),
        "etc/ssh/ssh_host_ed25519_key.pub": (0o644, host_key.with_suffix(".pub").read_text()),
        "root/.ssh/authorized_keys": (0o600, authorized),
        "etc/systemd/network/10-way.network": (0o644, way),
        "etc/systemd/network/20-cable.network": (0o644, cable),
        "etc/systemd/system/systemd-networkd-wait-online.service.d/lab.conf": (
            0o644,
            "[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --any\n",
        ),
    }
    if apt_proxy:
        files["etc/apt/apt.conf.d/00gpuops-lab"] = (0o644, f'Acquire::http::Proxy "{apt_proxy}";\n')
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (mode, content) in files.items():
            data = content.encode()
            member = tarfile.TarInfo(name)
            member.mode, member.size, member.mtime = mode, len(data), int(time.time())
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def start(machine: Machine, base: Path) -> None:
    """Make its disk on top of the base disk where it has none, and run it."""
    if not machine.disk.exists():
        line = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "raw", str(machine.disk)]
        subprocess.run(line, check=True)
    said = machine.directory / "qemu.log"
    with said.open("wb") as log:
        # Out of this terminal's session, so that it outlives the command that started it.
        process = subprocess.Popen(
            words(machine),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={"QEMU_MODULE_DIR": MODULES, **os.environ},  # for a copy in another place
        )
    if machine.link and machine.number == 1:
        wait(lambda: machine.link is not None and machine.link.exists(), 30, process, said)
    else:
        wait(machine.pid_file.exists, 30, process, said)


def wait(ready: object, seconds: float, process: subprocess.Popen[bytes], said: Path) -> None:
    """Until `ready()`; a QEMU that has ended is reported with its own words."""
    limit = time.monotonic() + seconds
    while not (callable(ready) and ready()):
        if process.poll() is not None or time.monotonic() > limit:
            raise LabError(f"QEMU did not start: {said.read_text().strip()[-2000:]}")
        time.sleep(0.05)


def pid(machine: Machine) -> int | None:
    """Its process, when it runs and is what the file says it is."""
    with contextlib.suppress(OSError, ValueError):
        number = int(machine.pid_file.read_text())
        if str(machine.pid_file).encode() in Path(f"/proc/{number}/cmdline").read_bytes():
            return number
    return None


def stop(machine: Machine) -> None:
    number = pid(machine)
    if number is None:
        return
    os.kill(number, signal.SIGTERM)
    limit = time.monotonic() + 30
    while pid(machine) is not None:
        if time.monotonic() > limit:
            os.kill(number, signal.SIGKILL)
        time.sleep(0.05)


def answers(machine: Machine) -> bool:
    """True when its sshd has said who it is; a forwarded port alone accepts long before that."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", machine.port), timeout=5) as connection:
        connection.settimeout(5)
        return connection.recv(4) == b"SSH-"
    return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def finish(disk: Path, kernel: Path, initrd: Path, log: Path) -> None:
    """Boot a new disk once, with QEMU as the boot loader, to put GRUB on it."""
    append = "root=/dev/vda1 rw console=ttyS0 mitigations=off quiet init=/usr/local/lib/gpuops-lab/finish"
    line = [QEMU, *EMULATION, *QUIET, "-smp", "2", "-m", "1024", "-nic", "none", "-no-reboot", "-serial", f"file:{log}"]
    line += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"]
    line += ["-kernel", str(kernel), "-initrd", str(initrd), "-append", append]
    try:
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=900)
        said = done.stderr
    except subprocess.TimeoutExpired:
        said = "no end after 900 seconds"
    console = log.read_text(errors="replace") if log.exists() else ""
    if "gpuops-lab: finished" not in console:
        raise LabError(f"the new disk did not get its boot loader: {said.strip()}\n{console[-2000:]}")
