"""What the lab derives from the machine: subnets, cgroup versions, packages, firewall rules, the image's recipe."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import cache, firewall, host, image, namespace, network, nodes, podman
from tests.lab.paths import Lab, LabError, Options, State

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:31 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
"""
UNIFIED = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_a_subnet_is_free_of_everything_in_use() -> None:
    assert network.free_subnet([]) == "10.89.0.0/24"
    assert network.free_subnet(["10.89.0.0/24", "10.89.1.7", "fd00::/64", "0.0.0.0/0"]) == "10.89.2.0/24"
    assert network.free_subnet(["10.89.0.0/17"]) == "10.89.128.0/24"
    with pytest.raises(LabError):
        network.free_subnet(["10.0.0.0/8"])


def test_every_host_has_an_address_of_its_own() -> None:
    hosts = network.addresses("10.89.3.0/24", 200)
    assert hosts["ctl"] == "10.89.3.10"
    assert hosts["n200"] == "10.89.3.210"
    assert len(set(hosts.values())) == 201


@pytest.mark.skipif(sys.byteorder != "little", reason="the sample is from a little-endian machine")
def test_name_servers_of_past_labs_are_seen() -> None:
    lines = [
        "  sl  local_address rem_address",
        " 1: 0105590A:0035 00000000:0000 07",
        " 2: 00000000:0035 0:0",
        " 3: 0100007F:0044 0:0",
    ]
    assert network.name_servers("\n".join(lines)) == ["10.89.5.1"]


def test_a_hybrid_machine_keeps_cgroup_version_1() -> None:
    assert namespace.cgroup_commands(namespace.mount_points(HYBRID), "1:cpu:/\n0::/\n") == [
        "umount /sys/fs/cgroup/unified"
    ]


def test_a_unified_machine_is_left_alone() -> None:
    assert namespace.cgroup_commands(namespace.mount_points(UNIFIED), "0::/\n") == []


def test_a_bare_chroot_gets_its_cgroups() -> None:
    assert namespace.cgroup_commands({}, "0::/\n") == ["mount -t cgroup2 cgroup2 /sys/fs/cgroup"]
    commands = namespace.cgroup_commands({}, "4:memory:/x\n2:cpu,cpuacct:/\n0::/\n")
    assert [line for line in commands if "memory" in line] == [
        "mkdir -p /sys/fs/cgroup/memory && mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory"
    ]
    assert commands[-1].endswith("mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd")


def test_the_file_system_of_a_path() -> None:
    table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /var/cache rw master:1 - overlay overlay rw\n"
    assert namespace.filesystem(Path("/var/cache/gpuops"), table) == "overlay"
    assert namespace.filesystem(Path("/root"), table) == "ext4"
    assert namespace.filesystem(Path("/root"), UNIFIED) is None


def test_a_killed_holder_is_seen(tmp_path: Path) -> None:
    space = namespace.Namespace(tmp_path)
    assert space.holder() is None
    (tmp_path / "holder").write_text("4194304 1 mnt:[1]\n")
    assert space.holder() is None
    own = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    (tmp_path / "holder").write_text(f"{os.getpid()} {own} {os.readlink('/proc/self/ns/mnt')}\n")
    assert space.holder() == os.getpid()


def test_only_missing_packages_are_named() -> None:
    assert host.missing(host.NEEDED, lambda name: "/" in name or name not in ("crun", "nft")) == ["crun", "nftables"]
    assert host.missing(host.NEEDED, lambda name: True) == []


SAVED = """\
*nat
:POSTROUTING ACCEPT [0:0]
:NETAVARK-1D - [0:0]
:NETAVARK-HOSTPORT-MASQ - [0:0]
:DOCKER - [0:0]
-A POSTROUTING -j NETAVARK-HOSTPORT-MASQ
-A POSTROUTING -s 10.89.1.0/24 -j NETAVARK-1D
-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE
-A NETAVARK-1D -d 10.89.1.0/24 -j ACCEPT
-A NETAVARK-HOSTPORT-MASQ -m comment --comment "netavark portfw masq mark" -j MASQUERADE
COMMIT
"""


def test_rules_of_one_subnet_go_and_nothing_else() -> None:
    assert firewall.deletions(SAVED, "10.89.1.0/24") == [
        ["-D", "POSTROUTING", "-s", "10.89.1.0/24", "-j", "NETAVARK-1D"],
        ["-D", "NETAVARK-1D", "-d", "10.89.1.0/24", "-j", "ACCEPT"],
        ["-F", "NETAVARK-1D"],
        ["-X", "NETAVARK-1D"],
    ]
    assert firewall.deletions(SAVED, "10.89.7.0/24") == []


def test_the_frame_goes_without_the_rules_of_others() -> None:
    words = firewall.deletions(SAVED, None)
    assert not any("172.17.0.0/16" in rule or "DOCKER" in rule for rule in words)
    assert ["-X", "NETAVARK-HOSTPORT-MASQ"] in words


def test_nftables_rules_of_one_subnet_go() -> None:
    listed = (
        "table inet netavark { # handle 1\n\tchain POSTROUTING { # handle 2\n"
        "\t\tip saddr 10.89.8.0/24 jump nv_ea_10_89_8_0_nm24 # handle 9\n"
        "\t\tip saddr 10.89.6.0/24 accept # handle 10\n\t}\n"
        "\tchain nv_ea_10_89_8_0_nm24 { # handle 11\n\t\tmasquerade # handle 12\n\t}\n}\n"
    )
    table = ["inet", "netavark"]
    assert firewall.nft_deletions(listed, "10.89.8.0/24") == [
        ["delete", "rule", *table, "POSTROUTING", "handle", "9"],
        ["delete", "rule", *table, "nv_ea_10_89_8_0_nm24", "handle", "12"],
        ["delete", "chain", *table, "nv_ea_10_89_8_0_nm24"],
    ]


def test_the_recipe_names_no_mirror_and_its_hash_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = image.recipe("trixie", Path("/x.tar"))
    assert not any("://" in word for word in words)
    assert words[-2:] == ["trixie", "/x.tar"]
    before = image.tag("trixie")
    assert before != image.tag("bookworm")
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "cowsay"))
    assert image.tag("trixie") != before


def test_an_image_is_built_anew_after_a_week(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    assert not image.fresh(archive, time.time())
    archive.touch()
    assert image.fresh(archive, time.time() + 6 * 86400)
    assert not image.fresh(archive, time.time() + 8 * 86400)


def test_containers_get_no_more_than_we_have() -> None:
    files, processes = podman.limits()
    text = podman.containers_conf(Path("/c"), Path("/r"), systemd=False)
    assert f'"nofile={files}:{files}", "nproc={processes}:{processes}"' in text
    assert 'cgroup_manager = "cgroupfs"' in text
    assert 'cgroup_manager = "systemd"' in podman.containers_conf(Path("/c"), Path("/r"), systemd=True)


def test_a_node_is_unprivileged_unless_asked(tmp_path: Path) -> None:
    for privileged in (False, True):
        state = State("x", Options(privileged=privileged), "image", "10.89.3.0/24", {"n1": "10.89.3.11"})
        words = nodes.run_words(Lab(tmp_path, "x"), state, "n1", "net", ["--device", "/dev/x"])
        assert ("--privileged" in words) is privileged
        assert words[-3:] == ["--device", "/dev/x", "image"]


def test_the_proxy_script_falls_back_to_the_mirror(tmp_path: Path) -> None:
    script = tmp_path / "proxy"
    script.write_text(cache.PROXY_SCRIPT.format(address="127.0.0.1", port=1))
    assert subprocess.run(["bash", str(script)], check=True, capture_output=True, text=True).stdout == "DIRECT\n"


def test_the_cache_hands_on_to_the_users_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert "Proxy: http://proxy.example:3128\n" in cache.configuration(cache.upstream_proxy())
    assert "Proxy" not in cache.configuration(None)
