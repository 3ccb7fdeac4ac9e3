# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do full-size packets reach a neighbour? Argument: JSON {"peer": name, "links": […own…], "peer_links": […]}.

Links are [{"name", "mtu", "addresses": ["10.0.0.1/24"]}]. For each own link that shares a network with the neighbour,
one ping of the link's full MTU with the don't-fragment bit.
Prints {"tried": n, "failed": [sentence], "skipped": [sentence]}.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys

HEADERS = {4: 28, 6: 48}  # IP and ICMP


def meeting_points(own: list[dict], theirs: list[dict]) -> list[tuple[dict, str, dict]]:
    """(own link, neighbour's address, neighbour's link): on a network of several rails the link of the same name."""
    points = []
    for link in own:
        mine = [ipaddress.ip_interface(a) for a in link["addresses"]]
        found = []
        for peer in theirs:
            for address in (ipaddress.ip_interface(a).ip for a in peer["addresses"]):
                # docker0 and virbr0 have the same address on every host: no way from one to the other.
                if any(address in m.network and address != m.ip for m in mine if m.version == address.version):
                    found.append((peer["name"] != link["name"], address.version, str(address), peer))
        if found:
            text, peer = min(found, key=lambda f: f[:3])[2:]
            points.append((link, text, peer))
    return points


def ping(link: str, address: str, size: int) -> tuple[bool, str]:
    """Three tries of one packet; the last words of ping say why not."""
    argv = ["ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", str(size), "-I", link, address]
    words = ""
    for _try in range(3):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return True, ""
        words = (done.stderr.strip().splitlines() or ["no answer"])[-1]
    return False, words


def check(peer_name: str, own: list[dict], theirs: list[dict]) -> dict[str, object]:
    points = meeting_points(own, theirs)
    failed, skipped = [], []
    if not points:
        skipped.append(f"no network in common with {peer_name}, so no full-size packet was sent")
    for link, address, peer in points:
        size = link["mtu"] - HEADERS[ipaddress.ip_address(address).version]
        ok, words = ping(link["name"], address, size)
        where = f"{link['name']} (MTU {link['mtu']}) to {peer_name} {address} on {peer['name']} (MTU {peer['mtu']})"
        if ok:
            # Some receivers take more than their MTU says, and answer in fragments; RDMA does not.
            if link["mtu"] > peer["mtu"]:
                skipped.append(f"the MTU differs from {where}; full-size packets pass, RDMA wants equal ones")
            continue
        if ping(link["name"], address, 56)[0]:
            failed.append(f"packets of {link['mtu']} bytes do not pass from {where}, small ones do: {words}")
        else:
            skipped.append(f"no ping from {where}: {words}")
    return {"tried": len(points), "failed": failed, "skipped": skipped}


if __name__ == "__main__":
    try:
        request = json.loads(sys.argv[1])
        print(json.dumps(check(request["peer"], request["links"], request["peer_links"])))
    except FileNotFoundError as error:
        print(json.dumps({"tried": 0, "failed": [], "skipped": [f"{error.filename} is not installed"]}))
