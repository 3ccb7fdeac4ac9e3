# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of Ethernet links, on the host itself. Installed by the role ethernet of gpuops.cluster.

appear LINK   apply /etc/gpuops/ethernet.json to a link that has just appeared (udev calls this)
restore       undo the last change of the link that carried the Ansible connection (a timer calls this)
confirm       keep that change
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_links as engine

CONFIG = "/etc/gpuops/ethernet.json"


def appear(link: str) -> dict[str, Any]:
    with open(CONFIG, encoding="utf-8") as file:
        return engine.converge({**json.load(file), "only": link}, apply=True)


def main(words: list[str]) -> dict[str, Any]:
    if len(words) == 2 and words[0] == "appear":
        return appear(words[1])
    if words == ["restore"]:
        return engine.restore()
    if words == ["confirm"]:
        return engine.confirm()
    sys.exit(__doc__)


print(json.dumps(main(sys.argv[1:])))
