"""Pages and example inventories name only variables that some role or playbook reads, and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpuops.cluster.tests.unit.support.documented import PAGES, PROJECT, ROLES, VARIABLES

EXAMPLES = sorted(PROJECT.glob("inventories/*/group_vars/*.yml"))
# What tasks, modules and callbacks say about hosts, and what the lab's own group_vars define.
OTHER = ("gpuops_", "lab_", "ansible_")
NO_VARIABLES = {"slurm_acct_db"}  # Slurm's database
PLAYBOOKS = "\n".join(
    path.read_text(encoding="utf-8") for path in [*PROJECT.glob("playbooks/**/*.yml"), *PROJECT.glob("plugins/**/*.py")]
)


def exists(name: str) -> bool:
    return name in VARIABLES | NO_VARIABLES or re.search(rf"\b{name}\b", PLAYBOOKS) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_a_page_names_variables_that_exist(page: Path) -> None:
    prefixes = "|".join(ROLES)
    others = r"^#.*|roles/\S+|tests/\S+|molecule/\S+|molecule( [a-z0-9_]+)+"
    text = re.sub(others, "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = set(re.findall(rf"(?<![\w./-])((?:{prefixes})_[a-z0-9_]+[a-z0-9])(?=: |:`|`)", text))
    assert not {name for name in named if not exists(name)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_an_example_sets_variables_that_exist(path: Path) -> None:
    """Also where it comments them out for the reader to decide."""
    text = re.sub(r"^# (?=[a-z_]+:( |$)|  - )", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    variables: dict[str, Any] = yaml.safe_load(text)
    assert variables
    assert not {name for name in variables if not name.startswith(OTHER) and not exists(name)}


TESTS = {
    name
    for path in [*PROJECT.glob("tests/unit/**/test_*.py"), *PROJECT.glob("tests/testinfra/test_*.py")]
    for name in [path.name, *re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)]
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_a_page_names_tests_that_exist(page: Path) -> None:
    """Long names are cut with an ellipsis: some test then has to begin so."""
    named = re.findall(r"`(test_[\w.]+)(…?)`", page.read_text(encoding="utf-8"))
    assert not {
        name for name, cut in named if not (any(one.startswith(name) for one in TESTS) if cut else name in TESTS)
    }
