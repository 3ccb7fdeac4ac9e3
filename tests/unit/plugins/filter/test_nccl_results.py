# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter takes a text and nothing else."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpuops.cluster.plugins.filter.nccl_results import FilterModule
from ansible_collections.gpuops.cluster.tests.unit.support import fixtures

nccl_results = FilterModule().filters()["nccl_results"]


def test_a_log() -> None:
    (run,) = nccl_results(fixtures.text("nccl-tests", "gh200-2x-allreduce-2.18.log"))
    assert run["collective"] == "all_reduce" and run["problems"] == []


@pytest.mark.parametrize("value", [None, 1, ["a"], {"stdout": "a"}])
def test_what_is_no_text(value: object) -> None:
    with pytest.raises(AnsibleFilterError, match="takes the text of a log"):
        nccl_results(value)
