"""Switches that come as text, from `-e name=false`: in Jinja any text but the empty one counts as true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "roles"


def switches(role: Path) -> list[str]:
    options = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    return [name for name, option in options.items() if option["type"] == "bool"]


def careless(line: str, name: str) -> bool:
    """True for a use that is neither converted, nor handed to a module's typed option as it is, nor only spoken of."""
    if not re.search(rf"\b{name}\b", line) or re.match(rf'\s*(- )?\w+: "\{{\{{ {name} \}}\}}"$', line):
        return False
    decides = re.sub(rf"'[^']*'|#.*|\b{name} is true\b", "", line)  # without messages and comments
    return bool(re.search(rf"\b{name}\b(?!\s*\|\s*bool\b)", decides))


@pytest.mark.parametrize("role", sorted(ROLES.iterdir()), ids=lambda role: role.name)
def test_a_switch_is_converted_where_it_decides(role: Path) -> None:
    files = [*role.glob("tasks/*.yml"), *role.glob("vars/*.yml"), *role.glob("templates/*.j2")]
    names = switches(role)
    found = [
        f"{path.relative_to(ROLES)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for name in names
        if careless(line, name)
    ]
    assert found == []
