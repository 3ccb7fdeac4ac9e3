"""Mirrors that go wrong, no room for packages and a dpkg that is killed, in the middle of a run of the site."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testinfra.faults import Start, full

pytest_plugins = ["tests.testinfra.faults"]
pytestmark = pytest.mark.usefixtures("nothing_is_lost")

Host = Any


RELEASES = ("535.261.03", "535.309.01")


def driver(host: Host) -> str:
    """The version of what is wholly installed of the driver."""
    shown = host.check_output("dpkg-query --show --showformat '${db:Status-Status} ${Version}' libcuda1")
    state, _space, version = shown.partition(" ")
    return str(version.partition("-")[0]) if state == "installed" else str(shown)


def other(host: Host) -> dict[str, Any]:
    """Variables for the release of the driver that the host does not have."""
    (wanted,) = (release for release in RELEASES if release != driver(host))
    return {"nvidia_driver_version": wanted, "nvidia_driver_downgrade_allowed": True}


def test_there_is_no_room_for_packages(start: Start, heal: Start, n2: Host) -> None:
    before, given = driver(n2), other(n2)
    n2.check_output("apt-get clean")
    run = start("--limit", "n2", roles=("nvidia_driver",), **given)
    with contextlib.ExitStack() as stack:
        with run.held_at("nvidia_driver : Packages | Ask apt what"):
            stack.enter_context(full(n2, "/var/cache/apt/archives"))
        assert run.end() != 0, run.said
    assert "n2: the driver" in run.said and "free space in /var/cache/apt/archives" in run.said, run.said
    assert driver(n2) == before
    heal("--limit", "n2", roles=("nvidia_driver",), **given)
    assert driver(n2) == given["nvidia_driver_version"]


def interrupt(host: Host, pattern: str) -> None:
    """Kill dpkg, and apt, as soon as there is a file that it has unpacked and not yet put in its place."""
    wait = f"until compgen -G '{pattern}' >/dev/null; do :; done"
    kill = "pkill -KILL -x dpkg; pkill -KILL -x apt-get; dpkg --audit"
    assert host.check_output("timeout 300 bash -c %s", f"{wait}; {kill}"), "it was not in the middle of anything"


def test_dpkg_is_killed(start: Start, heal: Start, n2: Host) -> None:
    given: dict[str, Any] = {"roles": ("slurm",), "slurm_packages_extra": ["vim-runtime"]}
    run = start("--limit", "n2", **given)
    run.reach("slurm : Install | Have apt ready")
    interrupt(n2, "/usr/share/vim/vim*/*/*.dpkg-new")
    assert run.end() != 0 and run.recap["n2"][2] == 1, run.said
    heal("--limit", "n2", broken=True, **given)


MIRROR = """
import http.server, os, time
class Mirror(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        fault = open("/run/mirror-fault").read().strip()
        path = "." + self.path
        if not os.path.exists(path):
            return self.send_error(404)
        data = open(path, "rb").read()
        broken = fault if self.path.endswith(".deb") else "none"
        if broken == "error":
            return self.send_error(500)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if broken == "other":
            data = data[:-1] + bytes([data[-1] ^ 1])
        if broken in ("cut", "hang"):
            data = data[: len(data) // 2]
        self.wfile.write(data)
        self.wfile.flush()
        while broken == "hang" and open("/run/mirror-fault").read().strip() == "hang":
            time.sleep(0.2)
http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Mirror).serve_forever()
"""


@pytest.fixture
def mirror(n2: Host) -> Iterator[dict[str, Any]]:
    """A server of debs on n2, with the variables for the release that it lacks. /run/mirror-fault spoils debs."""
    given = other(n2)
    folder = f"/root/debs/{given['nvidia_driver_version']}"
    n2.check_output("printf %s > /root/mirror.py; echo none > /run/mirror-fault", MIRROR)
    n2.check_output(
        f"systemd-run --collect --unit=mirror --working-directory={folder} /usr/bin/python3 /root/mirror.py"
    )
    n2.check_output("timeout 120 sh -c 'until curl -fs http://127.0.0.1:8123/SHA256SUMS; do :; done'")
    digest = n2.check_output(f"sha256sum {folder}/SHA256SUMS").split()[0]
    n2.check_output("cp /etc/hosts /run/hosts; echo 127.0.0.1 mirror.example >> /etc/hosts")
    yield {
        **given,
        "nvidia_driver_source": "local",
        "nvidia_driver_repository": "http://mirror.example:8123",
        "nvidia_driver_repository_checksum": f"sha256:{digest}",
    }
    n2.check_output("systemctl stop mirror; cat /run/hosts > /etc/hosts; rm /run/hosts")


def test_a_mirror_goes_wrong(start: Start, heal: Start, n2: Host, mirror: dict[str, Any]) -> None:
    """Debs that are not what SHA256SUMS says are never where apt finds them, whatever the fault."""
    before, folder = driver(n2), "/var/lib/gpuops/nvidia-driver"
    n2.check_output(f"rm -rf {folder}; cp /etc/hosts /run/hosts.named")
    for fault, words in {
        "other": "did not match",
        "cut": "Incomplete read",
        "error": "HTTP Error 500",
        "hang": "timed out",
        "nameless": "Name or service not known",
    }.items():
        run = start("--limit", "n2", roles=("nvidia_driver",), **mirror)
        with run.held_at("nvidia_driver : Repository local | Download SHA256SUMS"):
            n2.check_output(f"echo {fault} > /run/mirror-fault")
            if fault == "nameless":
                n2.check_output("cat /run/hosts > /etc/hosts")
        code = run.end()
        n2.check_output("echo none > /run/mirror-fault; cat /run/hosts.named > /etc/hosts")
        assert code != 0 and run.recap["n2"][2] == 1, run.said
        assert re.search(rf"failed: \[n2\].*libcuda1.*{words}", run.failures), run.said
        assert driver(n2) == before
        assert n2.check_output(f"ls {folder} | grep deb$ || true") == "", "what came was not kept"
    heal("--limit", "n2", roles=("nvidia_driver",), **mirror)
    assert driver(n2) == mirror["nvidia_driver_version"]
