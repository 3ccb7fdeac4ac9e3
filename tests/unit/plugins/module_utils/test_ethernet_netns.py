"""ethernet_links against the real kernel: a veth pair and a macvlan in a network namespace. Needs root and ethtool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SPACE = f"gpuops-{os.getpid()}"
CODE = """
import json, sys
from ansible_collections.gpuops.cluster.plugins.module_utils import _ethernet_links as engine
print(json.dumps(engine.converge(json.loads(sys.argv[1]), apply=sys.argv[2] == "apply")))
"""

Converge = Callable[..., "dict[str, Any]"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def converge() -> Iterator[Converge]:
    """A function that converges links e0 (veth, up) and m0 (macvlan on it, down) of a fresh namespace."""
    if os.geteuid() != 0 or not shutil.which("ethtool"):
        pytest.skip("needs root and ethtool")
    try:
        ip("netns", "add", SPACE)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        ip("-n", SPACE, "link", "add", "e0", "type", "veth", "peer", "name", "e1")
        ip("-n", SPACE, "link", "set", "e0", "up")
        ip("-n", SPACE, "link", "set", "e1", "up")
        ip("-n", SPACE, "link", "add", "m0", "link", "e0", "type", "macvlan")

        def call(*interfaces: dict[str, Any], apply: bool = True, **more: Any) -> dict[str, Any]:
            config = {"interfaces": list(interfaces), "rollback_after": 5, "program": "/bin/true", **more}
            word = "apply" if apply else "plan"
            argv = ["ip", "netns", "exec", SPACE, sys.executable, "-c", CODE, json.dumps(config), word]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment)
            return dict(json.loads(done.stdout))

        yield call
    finally:
        ip("netns", "del", SPACE)


def test_mtu_of_a_macvlan_raises_its_parent_once(converge: Converge) -> None:
    wanted = {"name": "m0", "mtu": 9000}
    assert converge(wanted)["waits"], "e0 has a carrier"
    plan = converge(wanted, apply=False, allow_restart=True)
    assert [c["link"] for c in plan["changes"]] == ["e0", "m0"]
    first = converge(wanted, allow_restart=True)
    assert [c["after"] for c in first["changes"]] == [{"mtu": 9000}, {"mtu": 9000}]
    assert converge(wanted, allow_restart=True) == {**first, "changed": False, "changes": []}


def test_what_the_driver_refuses_is_skipped_in_its_words(converge: Converge) -> None:
    result = converge({"name": "e0", "ring": {"rx": "max"}, "offloads": {"tso": False, "lro": True}})
    assert "e0 ring rx max: netlink error: Operation not supported" in result["left_out"]
    assert "e0 offloads: the driver fixes lro at off" in result["left_out"]
    assert [c["after"] for c in result["changes"] if c["state"] == "changed"] == [{"tso": False}]
    assert converge({"name": "e0", "offloads": {"tso": False}})["changed"] is False


def test_more_than_the_maximum_mtu_is_clamped(converge: Converge) -> None:
    result = converge({"name": "e0", "mtu": 70000}, allow_restart=True)
    assert result["left_out"] == ["e0 mtu: mtu 70000 is above the maximum, 65535 taken"]
    assert result["changes"][0]["after"] == {"mtu": 65535}
