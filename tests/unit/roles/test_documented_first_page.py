"""The first page shows the example's inventory and a summary as the callback prints it, and the same in Chinese."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.gpuops.cluster.plugins.callback.summary import CallbackModule
from ansible_collections.gpuops.cluster.tests.unit.support.documented import PROJECT, options

PAGES = [PROJECT / "README.md", PROJECT / "README.zh-CN.md"]
NODES = [f"gpu{number:02}" for number in range(1, 9)]
JOINED = {"ssh_trust": 12, "host_tuning": 9, "nvidia_driver": 14, "node_health": 7, "slurm": 12, "monitoring": 10}
CHANGED = {"gpu07": JOINED, "gpu08": JOINED, "mgmt01": {"slurm": 2, "monitoring": 1}}
FREE = options("node_health")["node_health_free_mib"]["default"]["/tmp"]


def block(page: Path, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def result(host: str, role: str, **data: Any) -> SimpleNamespace:
    task = SimpleNamespace(_role=SimpleNamespace(get_name=lambda: f"gpuops.cluster.{role}"))
    return SimpleNamespace(_host=SimpleNamespace(get_name=lambda: host), _result=data, _task=task)


def facts(host: str, kind: str, role: str, line: str) -> SimpleNamespace:
    return result(host, role, ansible_facts={f"gpuops_{kind}": {role: [line]}})


def summary() -> list[str]:
    """What the callback prints of a run in which two nodes join."""
    callback = CallbackModule()
    printed: list[str] = []
    callback._display = SimpleNamespace(banner=printed.append, display=lambda text, color: printed.append(text))
    for host, counts in CHANGED.items():
        for role, count in counts.items():
            for _change in range(count):
                callback.v2_runner_on_ok(result(host, role, changed=True))
    for host in NODES:
        callback.v2_runner_on_ok(facts(host, "skipped", "infiniband", "RDMA: no RDMA device"))
    for host in ("gpu07", "gpu08"):
        callback.v2_runner_on_ok(facts(host, "reboot_required", "host_tuning", "kernel parameter iommu=pt"))
    full = f"warn: disk_full /tmp: 311 MiB free on /tmp, {FREE} wanted"
    callback.v2_runner_on_ok(facts("gpu02", "notes", "node_health", full))
    callback.v2_playbook_on_stats(SimpleNamespace(processed=dict.fromkeys([*NODES, "mgmt01", "login01"], 1)))
    return printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_end_of_a_run_is_as_the_callback_prints_it(page: Path) -> None:
    assert block(page, "text").splitlines() == summary()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_inventory_is_the_examples(page: Path) -> None:
    def hosts(text: str) -> dict[str, list[str]]:
        return {group: list(given["hosts"]) for group, given in yaml.safe_load(text)["all"]["children"].items()}

    assert hosts(block(page, "yaml")) == hosts(
        (PROJECT / "inventories/example-8x4/hosts.yml").read_text(encoding="utf-8")
    )


def test_both_languages_have_the_same_parts() -> None:
    """Sections, links, rows of tables, code marks and commands."""

    def parts(page: Path) -> list[list[str]]:
        text = page.read_text(encoding="utf-8").replace("README.zh-CN.md", "README.md")
        commands = [line.split("#")[0].rstrip() for line in block(page, "").splitlines()]
        return [
            re.findall(r"^#+ ", text, flags=re.MULTILINE),
            re.findall(r"\]\(([^)]+)\)", text),
            re.findall(r"^\|", text, flags=re.MULTILINE),
            sorted(set(re.findall(r"`([^`\n]*[./_][^`\n]*)`", text))),
            commands,
        ]

    english, chinese = (parts(page) for page in PAGES)
    assert chinese == english
