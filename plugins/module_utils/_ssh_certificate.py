# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and certificates of OpenSSH, and whether a certificate can stay. Private to this collection."""

from __future__ import annotations

import base64
import struct
from typing import Any, NamedTuple

KEY_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2}  # ECDSA has two: curve and point


class Certificate(NamedTuple):
    """What decides whether an OpenSSH certificate can stay. Times are seconds since the epoch, UTC."""

    key: tuple[bytes, ...]
    host: bool
    identity: str
    principals: frozenset[str]
    after: int
    before: int
    authority: bytes


def blob(line: str) -> bytes:
    """The binary key in a public key or certificate line; empty where there is none."""
    words = line.split()
    try:
        return base64.b64decode(words[1], validate=True)
    except (IndexError, ValueError):
        return b""


def strings(data: bytes, count: int) -> tuple[tuple[bytes, ...], bytes]:
    """The first `count` SSH strings (32 bit length, then bytes) and the rest."""
    found = []
    for _unused in range(count):
        (size,) = struct.unpack_from(">I", data)
        if len(data) < 4 + size:
            raise ValueError("truncated")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return tuple(found), data


def public_key(line: str) -> tuple[bytes, ...]:
    """Type and numbers of a plain public key, to compare with a certificate's."""
    data = blob(line)
    (kind,), _unused = strings(data, 1)
    return strings(data, 1 + KEY_FIELDS.get(kind.decode(), 2))[0]


def parse_certificate(line: str) -> Certificate | None:
    """A certificate line, parsed after PROTOCOL.certkeys of OpenSSH; None where it is none."""
    try:
        (kind, _nonce), data = strings(blob(line), 2)
        plain = kind.decode().replace("-cert-v01@openssh.com", "")
        key, data = strings(data, KEY_FIELDS.get(plain, 2))
        _serial, role = struct.unpack_from(">QI", data)
        (identity, packed), data = strings(data[12:], 2)
        after, before = struct.unpack_from(">QQ", data)
        (_critical, _extensions, _reserved, authority), _unused = strings(data[16:], 4)
        principals = []
        while packed:
            (name,), packed = strings(packed, 1)
            principals.append(name.decode())
        words = identity.decode()
    except (struct.error, ValueError):
        return None
    return Certificate((plain.encode(), *key), role == 2, words, frozenset(principals), after, before, authority)


def wrong(request: dict[str, Any], line: str, authority: str, now: float) -> str:
    """Why the certificate in `line` cannot stay for this request; empty where it can."""
    have = parse_certificate(line)
    if have is None or not request["public_key"]:
        return "no certificate"
    reasons = {
        "signed by another authority": have.authority != blob(authority),
        "made for another key": have.key != public_key(request["public_key"]),
        "made for something else": have.host != (request["type"] == "host") or have.identity != request["identity"],
        "names or addresses changed": have.principals != frozenset(request["principals"]),
        "not valid yet": have.after > now,
        "expired": have.before <= now,
        "less than a third of its time left": (have.before - now) * 3 < have.before - have.after,
    }
    return next((reason for reason, true in reasons.items() if true), "")
