"""What a task registers hides a variable of the role that has the same name, from then on and for all that use it."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible_collections.gpuops.cluster.tests.unit.support.documented import PROJECT, ROLES


@pytest.mark.parametrize("role", ROLES)
def test_no_task_registers_the_name_of_a_variable(role: str) -> None:
    folder = PROJECT / "roles" / role
    named = set()
    for part in ("vars", "defaults"):
        file = folder / part / "main.yml"
        if file.exists():
            named |= set(yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("tasks/*.yml")]
    registered = {name for text in texts for name in re.findall(r"(?m)^\s*register: (\w+)$", text)}
    assert not named & registered
