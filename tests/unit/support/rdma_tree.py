# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sysfs with network and RDMA devices: made by hand, or as the tools of a real machine reported them.

ibstat, ibstatus, ibv_devinfo, rdma and ibdev2netdev print what the kernel shows in sysfs. Here it is put back there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_STATES = {"DOWN": "1: DOWN", "INIT": "2: INIT", "ARMED": "3: ARMED", "ACTIVE": "4: ACTIVE"}
_PHYSICAL = {
    "POLLING": "2: Polling",
    "DISABLED": "3: Disabled",
    "LINKUP": "5: LinkUp",
    "LINK_UP": "5: LinkUp",
}


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def pci(sysfs: Path, address: str, *parents: str, driver: str = "mlx5_core", **files: str) -> Path:
    """A PCI function below its parents, with its driver."""
    folder = sysfs / "devices/pci0000:00"
    for name in (*parents, address):
        folder /= name
    write(folder, **files)
    (sysfs / f"bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(sysfs / f"bus/pci/drivers/{driver}")
    return folder


def netdev(sysfs: Path, name: str, device: Path | None = None, **files: str) -> Path:
    """An interface; of hardware, when there is a device."""
    folder = (device / "net" if device else sysfs / "devices/virtual/net") / name
    write(
        folder, **{"type": "1", "mtu": "1500", "address": "02:00:00:00:00:01", "uevent": f"INTERFACE={name}", **files}
    )
    if device:
        (folder / "device").symlink_to(device)
    (sysfs / "class/net").mkdir(parents=True, exist_ok=True)
    (sysfs / "class/net" / name).symlink_to(folder)
    return folder


def hca(sysfs: Path, name: str, device: Path | None = None, **files: str) -> Path:
    folder = (device / "infiniband" if device else sysfs / "devices/virtual/infiniband") / name
    write(folder, **files)
    if device:
        (folder / "device").symlink_to(device)
    (sysfs / "class/infiniband").mkdir(parents=True, exist_ok=True)
    (sysfs / "class/infiniband" / name).symlink_to(folder)
    return folder


def port(hca_folder: Path, number: int = 1, /, **files: str) -> Path:
    folder = hca_folder / "ports" / str(number)
    write(folder, **files)
    return folder


def gid(port_folder: Path, index: int, address: str, kind: str = "RoCE v2", interface: str = "") -> None:
    write(port_folder / "gids", **{str(index): address})
    write(port_folder / "gid_attrs/types", **{str(index): kind})
    if interface:
        write(port_folder / "gid_attrs/ndevs", **{str(index): interface})


# From recordings


def _colons(guid: str) -> str:
    digits = guid.removeprefix("0x").replace(":", "")
    return ":".join(digits[place : place + 4] for place in range(0, len(digits), 4))


def _files(**words: str | None) -> dict[str, str]:
    """Files of a port, in the kernel's words; without those that the recording does not tell."""
    state, physical, layer = words.get("state"), words.get("phys_state"), words.get("link_layer")
    files = {
        "state": _STATES.get((state or "").upper()),
        "phys_state": _PHYSICAL.get((physical or "").upper()),
        "link_layer": layer,
        "rate": words.get("rate"),
        "lid": hex(int(words["lid"] or "0", 0)) if words.get("lid") else None,
        "sm_lid": hex(int(words["sm_lid"] or "0", 0)) if words.get("sm_lid") else None,
    }
    return {name: text for name, text in files.items() if text is not None}


def _blocks(text: str, start: str) -> list[tuple[str, dict[str, str]]]:
    """Blocks that begin with a line of this pattern, and the "key: value" lines in them."""
    blocks: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        match = re.match(start, line)
        if match:
            blocks.append((match.group(1), {}))
            continue
        key, colon, value = line.strip().partition(":")
        if blocks and colon and value.strip():
            blocks[-1][1][key.strip()] = value.strip()
    return blocks


def from_ibstat(sysfs: Path, text: str) -> None:
    for name, block in _blocks(text, r"CA '(.*)'"):
        device = hca(
            sysfs,
            name,
            node_guid=_colons(block["Node GUID"]),
            fw_ver=block["Firmware version"],
            hca_type=block["CA type"],
        )
        if "State" in block:
            rate, layer = f"{block['Rate']} Gb/sec", block.get("Link layer")
            port(
                device,
                **_files(
                    state=block["State"], phys_state=block["Physical state"], rate=rate, link_layer=layer,
                    lid=block["Base lid"], sm_lid=block.get("SM lid"),
                ),
            )  # fmt: skip


def from_ibstatus(sysfs: Path, text: str) -> None:
    for name, block in _blocks(text, r"Infiniband device '(.*)' port 1 status:"):
        folder = port(
            hca(sysfs, name),
            **_files(
                state=block["state"].split(": ")[1], phys_state=block["phys state"].split(": ")[1], rate=block["rate"],
                link_layer=block["link_layer"], lid=block["base lid"], sm_lid=block["sm lid"],
            ),
        )  # fmt: skip
        gid(folder, 0, block["default gid"], "IB/RoCE v1")


def from_ibv_devinfo(sysfs: Path, text: str) -> None:
    for name, block in _blocks(text, r"hca_id:\s*(\S+)"):
        model = f"MT{block['vendor_part_id']}"
        device = hca(
            sysfs,
            name,
            node_guid=block["node_guid"],
            fw_ver=block["fw_ver"],
            board_id=block["board_id"],
            hca_type=model,
        )
        state = re.sub(r"PORT_(\w+).*", r"\1", block["state"])
        port(
            device, **_files(state=state, link_layer=block["link_layer"], lid=block["port_lid"], sm_lid=block["sm_lid"])
        )


def _rdma_links(text: str) -> list[dict[str, Any]]:
    if text.startswith("["):
        found: list[dict[str, Any]] = json.loads(text)
        return found
    links = []
    for line in text.splitlines():
        match = re.match(r"(?:link|\d+/\d+:) (\w+)/(\d+):? (.*)", line)
        assert match is not None, line
        words = match.group(3).split()
        links.append({"ifname": match.group(1), "port": int(match.group(2)), **dict(zip(words[::2], words[1::2]))})
    return links


def from_rdma(sysfs: Path, text: str) -> None:
    """An interface makes the link one of Ethernet; a subnet prefix makes it one of InfiniBand."""
    for link in _rdma_links(text):
        layer = "Ethernet" if "netdev" in link else "InfiniBand"
        folder = port(
            hca(sysfs, link["ifname"]),
            link["port"],
            **_files(
                state=link["state"], phys_state=link["physical_state"], link_layer=layer, lid=link.get("lid"),
                sm_lid=link.get("sm_lid"),
            ),
        )  # fmt: skip
        if "netdev" in link:
            gid(folder, 0, "fe80:0000:0000:0000:0000:0000:0000:0001", interface=link["netdev"])


def from_ibdev2netdev(sysfs: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines()):
        match = re.match(r"(\w+)\s+port\s+1\s+==>\s+(\w+)\s+\((\w+)\)", line)
        assert match is not None, line
        device = pci(sysfs, f"0000:{number:02x}:00.0")
        netdev(sysfs, match.group(2), device, type="32" if match.group(2).startswith("ib") else "1")
        port(hca(sysfs, match.group(1), device), state="4: ACTIVE", phys_state="5: LinkUp")


def from_recording(sysfs: Path, name: str, text: str) -> None:
    readers = {
        "ibstatus": from_ibstatus,
        "ibstat": from_ibstat,
        "ibv_devinfo": from_ibv_devinfo,
        "rdma": from_rdma,
        "ibdev2netdev": from_ibdev2netdev,
    }
    next(reader for prefix, reader in readers.items() if name.startswith(prefix))(sysfs, text)
