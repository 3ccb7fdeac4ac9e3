#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_verify
short_description: Proof that a host is watched, by asking its exporter, Prometheus, Alertmanager and Grafana
version_added: 0.3.0
description:
  - Asks the daemons of this host over HTTP, without a proxy, and waits for those that have just been started.
    Fails with what is wrong.
  - A daemon that is not installed yet is not asked.
  - Made for the role P(gpuops.cluster.monitoring#role).
options:
  exporter_port:
    description: Port of the exporter here, whose page must have the host's metrics. V(0) asks none.
    type: int
    default: 0
  sources:
    description: Whose metrics it must have as well, once their timer is installed.
    type: list
    elements: str
    choices: [gpu, slurm]
    default: []
  prometheus:
    description: What the Prometheus here must know. None is asked where it is not given.
    type: dict
    suboptions:
      api:
        description: Where its API answers, such as C(http://127.0.0.1:9090/api/v1).
        type: str
        required: true
      interval:
        description: Seconds between two scrapes.
        type: int
        default: 15
      hosts:
        description: Hosts that must be up.
        type: list
        elements: str
        default: []
      gpu_hosts:
        description: Those that must have metrics of GPUs.
        type: list
        elements: str
        default: []
      alertmanager:
        description: Address and port of the Alertmanager here.
        type: str
        default: 127.0.0.1:9093
      receivers:
        description: Names of receivers that it must have loaded. Empty where there is no Alertmanager.
        type: list
        elements: str
        default: []
      grafana:
        description: Address of the Grafana here. Empty where there is none.
        type: str
        default: ""
extends_documentation_fragment:
  - gpuops.cluster.look
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Ask the exporter of a GPU node
  gpuops.cluster.monitoring_verify:
    exporter_port: 9100
    sources: [gpu]

- name: Ask Prometheus on its server
  gpuops.cluster.monitoring_verify:
    prometheus:
      api: http://127.0.0.1:9090/api/v1
      hosts: [ctl, n1, n2]
      gpu_hosts: [n1, n2]
"""

RETURN = r"""
not_asked:
  description: What could not be asked, one sentence each.
  returned: success
  type: list
  elements: str
  sample: [the exporter is asked once it is installed]
"""

import time
from http.client import HTTPException
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url
from ansible_collections.gpuops.cluster.plugins.module_utils._monitoring_verify import Host, verify

PROMETHEUS: dict[str, Any] = {
    "api": {"type": "str", "required": True},
    "interval": {"type": "int", "default": 15},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "gpu_hosts": {"type": "list", "elements": "str", "default": []},
    "alertmanager": {"type": "str", "default": "127.0.0.1:9093"},
    "receivers": {"type": "list", "elements": "str", "default": []},
    "grafana": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "exporter_port": {"type": "int", "default": 0},
            "sources": {"type": "list", "elements": "str", "choices": ["gpu", "slurm"], "default": []},
            "prometheus": {"type": "dict", "options": PROMETHEUS},
        },
        supports_check_mode=True,
    )

    def get(url: str) -> tuple[int, str]:
        answer, told = fetch_url(module, url, use_proxy=False, timeout=30)
        try:
            return told["status"], answer.read().decode("utf-8", "replace") if told["status"] == 200 else told["msg"]
        except (OSError, HTTPException) as error:  # cut off
            return 0, str(error)

    complaint, not_asked = verify(Host(get, time.sleep), module.params)
    if complaint:
        module.fail_json(msg=complaint)
    module.exit_json(changed=False, not_asked=not_asked)


if __name__ == "__main__":
    main()
