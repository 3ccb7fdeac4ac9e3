# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether nodes reach each other at a high TCP port: MPI and NCCL call back at random ones, and firewalls forget that.

Every node listens, and calls the next one in a ring. What fails is a warning, since NCCL may use another interface.
"""

from __future__ import annotations

from typing import Any

PORT = 47517
# One task a node: $1 port, $2 seconds, then name=address of all nodes. Says PORT, its name, the next, how it went.
SCRIPT = r"""
command -v python3 >/dev/null || exit 0
exec python3 -c '
import os, socket, sys, threading, time
port, limit = int(sys.argv[1]), float(sys.argv[2])
nodes = [word.split("=", 1) for word in sys.argv[3:]]
me = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
names = [name for name, _address in nodes]
if me not in names:
    sys.exit(0)
own = nodes[names.index(me)][1]
other, address = nodes[(names.index(me) + 1) % len(nodes)]
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.settimeout(limit)
def serve():
    try:
        listener.accept()[0].close()
    except OSError:
        pass
served = threading.Thread(target=serve)
try:
    listener.bind((own, port))
    listener.listen(8)
    served.start()
except OSError:
    pass
until, answer = time.monotonic() + limit, ""
while answer != "ok" and time.monotonic() < until:
    try:
        socket.create_connection((address, port), 3).close()
        answer = "ok"
    except OSError as error:
        answer = error.strerror or "no answer"
        time.sleep(0.3)
if served.ident:
    served.join(limit)
print("PORT\t%s\t%s\t%s" % (me, other, answer), flush=True)
' "$@"
"""


def complaints(text: str, addresses: dict[str, str]) -> list[str]:
    """From what all tasks said to one line for each connection that failed."""
    found = []
    for line in text.splitlines():
        at = line.find("PORT\t")
        parts = line[at:].split("\t") if at >= 0 else []
        if len(parts) == 4 and parts[3].strip() != "ok":
            where = f"{parts[2]} ({addresses.get(parts[2], '?')}) at TCP port {PORT}: {parts[3].strip()}"
            why = "MPI and NCCL call back at random high ports: are they open between nodes?"
            found.append(f"{parts[1]} does not reach {where}; {why}")
    return found


def look(gate: Any) -> list[str]:
    """One launch over all nodes of a Gate that has probed them; warnings."""
    addresses = {name: probe["address"] for name, probe in gate.probes.items() if probe.get("address")}
    if len(addresses) < 2 or len(addresses) != len(gate.nodes):
        return []
    words = ["sh", "-c", SCRIPT, "ports", str(PORT), "15", *(f"{name}={ip}" for name, ip in addresses.items())]
    spec = gate.spec({"names": list(gate.nodes)}, words, 1, "preflight-ports", True, 60.0)
    outcome = gate.run_launches([spec])[0]
    gate.save("preflight-ports.log", f"{outcome['stdout']}\n{outcome['stderr']}")
    return complaints(outcome["stdout"], addresses)
