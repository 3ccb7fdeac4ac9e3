# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of Ethernet links, on the host itself. Installed by the role ethernet of gpuops.cluster.

appear LINK   apply /etc/gpuops/ethernet.json to a link that has just appeared (udev calls this)
rdma DEVICE   the same for the links of an RDMA device that has just appeared: drivers make it later than the link
restore       undo the last change of the link that carried the Ansible connection (a timer calls this)
confirm       keep that change
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_links as engine
from ansible_collections.gpuops.cluster.plugins.module_utils._roce import devices

CONFIG = "/etc/gpuops/ethernet.json"


def appear(link: str) -> dict[str, Any]:
    with open(CONFIG, encoding="utf-8") as file:
        return engine.converge({**json.load(file), "only": link}, apply=True)


def rdma(device: str) -> list[dict[str, Any]]:
    names = engine.Links().names()
    return [appear(name) for name in names if device in [found for found, _port in devices(name)]]


def main(words: list[str]) -> Any:
    if len(words) == 2 and words[0] == "appear":
        return appear(words[1])
    if len(words) == 2 and words[0] == "rdma":
        return rdma(words[1])
    if words == ["restore"]:
        return engine.restore()
    if words == ["confirm"]:
        return engine.confirm()
    sys.exit(__doc__)


print(json.dumps(main(sys.argv[1:])))
