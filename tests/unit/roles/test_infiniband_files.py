"""Mode and MTU of IPoIB on trees like sysfs: no kernel here has such an interface. Files take all that is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "roles/infiniband/files/ipoib.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ipoib", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ipoib = load()


def add(root: Path, name: str, **values: str) -> Path:
    base = root / "class/net" / name
    base.mkdir(parents=True)
    for key, value in values.items():
        (base / key).write_text(value + "\n")
    return base


def converge(root: Path, **more: Any) -> dict[str, Any]:
    request = {"mode": "connected", "mtu": 65520, "allow_restart": False, "apply": True, "sysfs": str(root), **more}
    result: dict[str, Any] = ipoib.converge(request)
    return result


def test_only_infiniband_and_the_second_run_changes_nothing(tmp_path: Path) -> None:
    ib0 = add(tmp_path, "ib0", type="32", mode="datagram", mtu="2044", carrier="0")
    eth0 = add(tmp_path, "eth0", type="1", mtu="1500", carrier="1")
    assert converge(tmp_path, apply=False) == {"changed": True, "links": ["ib0"], "skipped": [], "waits": []}
    assert (ib0 / "mode").read_text() == "datagram\n", "check mode writes nothing"
    assert converge(tmp_path)["changed"]
    assert ((ib0 / "mode").read_text(), (ib0 / "mtu").read_text()) == ("connected\n", "65520\n")
    assert (eth0 / "mtu").read_text() == "1500\n"
    assert not converge(tmp_path)["changed"]


def test_a_link_in_use_waits_for_consent(tmp_path: Path) -> None:
    ib0 = add(tmp_path, "ib0", type="32", mode="datagram", mtu="2044", carrier="1")
    result = converge(tmp_path)
    assert not result["changed"]
    assert result["waits"][0].startswith(
        "ib0 mode connected: interrupts the link: set infiniband_ipoib_restart_allowed"
    )
    assert (ib0 / "mode").read_text() == "datagram\n"
    assert converge(tmp_path, allow_restart=True)["changed"]


def test_a_driver_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "ib0", type="32", mode="datagram", mtu="4092", carrier="0")
    monkeypatch.setattr(ipoib, "write", lambda _file, _value: "Invalid argument")
    result = converge(tmp_path, mtu=0)
    assert not result["changed"]
    assert result["skipped"][0].startswith("ib0 mode connected: Invalid argument; where the driver accelerates IPoIB")


def test_a_host_without_ipoib_says_so(tmp_path: Path) -> None:
    add(tmp_path, "eth0", type="1", mtu="1500")
    assert converge(tmp_path)["skipped"] == ["IPoIB: no IPoIB interface"]
