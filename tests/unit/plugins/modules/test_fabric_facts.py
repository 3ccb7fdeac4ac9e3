# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from ansible.module_utils import basic
from ansible_collections.gpuops.cluster.plugins.modules import fabric_facts
from ansible_collections.gpuops.cluster.tests.unit.support import rdma_tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("check_mode", [False, True])
def test_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str], check_mode: bool) -> None:
    rdma_tree.port(rdma_tree.hca(tmp_path, "mlx5_0"), state="1: DOWN", phys_state="2: Polling", link_layer="InfiniBand")
    options: dict[str, Any] = {"sysfs_root": str(tmp_path), "_ansible_check_mode": check_mode}
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode()
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", arguments),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        pytest.raises(SystemExit),
    ):
        fabric_facts.main()
    done = json.loads(capsys.readouterr().out)
    assert done["changed"] is False
    assert done["ansible_facts"]["fabric"]["problems"] == [
        {"code": "port_down", "device": "mlx5_0", "detail": "mlx5_0:1 is down, physical state Polling"}
    ]
