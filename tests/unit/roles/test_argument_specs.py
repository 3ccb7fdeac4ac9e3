"""Every role's argument specification says exactly what its defaults say: the same names, values and types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[3]
ROLES = sorted(path.name for path in (PROJECT / "roles").iterdir() if (path / "meta").is_dir())
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "path": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "raw": (object,),
}


def read(role: str, name: str) -> dict[str, Any]:
    path = PROJECT / "roles" / role / name
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}


def options(role: str) -> dict[str, Any]:
    found: dict[str, Any] = read(role, "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})
    return found


def is_template(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


@pytest.mark.parametrize("role", ROLES)
def test_names_are_the_same(role: str) -> None:
    specified = {name for name, option in options(role).items() if not option.get("required")}
    assert specified == set(read(role, "defaults/main.yml"))


@pytest.mark.parametrize("role", ROLES)
def test_values_are_the_same(role: str) -> None:
    defaults = read(role, "defaults/main.yml")
    differing = {
        name: (option.get("default"), defaults.get(name))
        for name, option in options(role).items()
        if not option.get("required") and option.get("default") != defaults.get(name)
    }
    assert not differing


@pytest.mark.parametrize("role", ROLES)
def test_defaults_have_the_type_that_is_specified(role: str) -> None:
    wrong = {}
    for name, value in read(role, "defaults/main.yml").items():
        kind = options(role)[name].get("type", "str")
        if value is None or is_template(value):
            continue
        if not isinstance(value, PYTHON_TYPES[kind]) or (isinstance(value, bool) and kind in {"int", "float", "str"}):
            wrong[name] = (kind, value)
    assert not wrong


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_carries_the_role_s_name_and_a_description(role: str) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"{role}_"), name
        assert option.get("description"), name
    for name in read(role, "vars/main.yml"):
        assert name.startswith(f"__{role}_"), name


@pytest.mark.parametrize("role", ROLES)
def test_task_files_stay_short(role: str) -> None:
    lengths = {
        str(path.relative_to(PROJECT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("tasks", "handlers")
        for path in (PROJECT / "roles" / role / folder).rglob("*.yml")
    }
    assert {name: length for name, length in lengths.items() if length > 110} == {}
