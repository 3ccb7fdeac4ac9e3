"""A bundle made on a connected machine is all that a host without network needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
Module = Callable[..., dict[str, Any]]


@pytest.fixture
def offline(n2: Any) -> Iterator[None]:
    """n2 without a network beyond the lab's own bridge: this machine forwards nothing of it."""
    address = n2.check_output("hostname -I").split()[0]
    table = ["nft", "add", "table", "ip", "gpuops_test_offline"]
    chain = "add chain ip gpuops_test_offline forward { type filter hook forward priority -10 ; }"
    rule = f"add rule ip gpuops_test_offline forward ip saddr {address} counter reject"
    for command in (table, ["nft", chain], ["nft", rule]):
        subprocess.run(command, check=True)
    yield
    subprocess.run(["nft", "delete", "table", "ip", "gpuops_test_offline"], check=True)


@pytest.mark.usefixtures("offline")
def test_a_bundle_installs_without_network(
    tmp_path: Path, ctl: Any, n2: Any, module: Module, lock: dict[str, str]
) -> None:
    """Made on ctl, which stands for the connected machine; copied to n2, checked there, and installed from."""
    source = "/srv/gpuops-lab/nccl_tests/nccl-tests-2.17.6.tar.gz"
    digest = n2.check_output(f"sha256sum {source}").split()[0]
    (tmp_path / "small.lock").write_text(f"{lock['filelock']}\n{lock['pip']}\n")
    given = {
        "bundle_host": "ctl",
        "bundle_dir": "/srv/bundle",
        "bundle_locks": [str(tmp_path / "small.lock")],
        "bundle_packages": ["tree"],
        "bundle_sources": [{"url": f"file://{source}", "checksum": f"sha256:{digest}"}],
        "bundle_pip_options": ["--no-index", "--find-links=/srv/gpuops-lab/wheels"],
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventories/lab", "playbooks/bundle.yml"]
    command += ["-e", json.dumps(given)]
    ctl.check_output("rm -rf /srv/bundle")
    for changed in (True, False):
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (" changed=0 " not in done.stdout) is changed, done.stdout

    ssh = ["ssh", "-F", n2.backend.ssh_config]
    tar = subprocess.run([*ssh, "ctl", "tar -C /srv -cf - bundle"], check=True, capture_output=True).stdout
    subprocess.run([*ssh, "n2", "tar -C /srv -xf -"], check=True, input=tar)
    n2.check_output("cd /srv/bundle && sha256sum --check --quiet SHA256SUMS")
    assert n2.check_output("ls /srv/bundle/sources") == Path(source).name
    built = module(
        "n2",
        "gpuops.cluster.python_environment",
        name="small",
        root="/opt/offline-envs",
        lock=(tmp_path / "small.lock").read_text(),
        find_links=["/srv/bundle/wheels"],
        no_index=True,
    )
    assert built["failed"] is False, built
    n2.check_output("/opt/offline-envs/small/bin/python -c 'import filelock'")
    apt = "-o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::sourcelist=/srv/bundle.list -o Dir::State::lists=/srv/lists"
    n2.check_output("mkdir -p /srv/lists/partial; echo 'deb [trusted=yes] file:/srv/bundle/debs ./' > /srv/bundle.list")
    n2.check_output(f"apt-get {apt} -qq update && DEBIAN_FRONTEND=noninteractive apt-get {apt} -qq -y install tree")
    assert n2.package("tree").is_installed

    n2.check_output("echo damage >> /srv/bundle/debs/Packages")
    assert "debs/Packages: FAILED" in n2.run("cd /srv/bundle && sha256sum --check --quiet SHA256SUMS").stdout
