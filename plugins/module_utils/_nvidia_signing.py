# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host with Secure Boot will load the kernel modules that dkms signs. Read on the control node."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


def signing_problems(settings: dict[str, Any], host: dict[str, Any]) -> list[str]:
    """A key that cannot be used, and a Secure Boot that would not load what it signs."""
    key, certificate = settings.get("mok_key", ""), settings.get("mok_certificate", "")
    problems = []
    if bool(key) != bool(certificate):
        problems.append("nvidia_driver_mok_key and nvidia_driver_mok_certificate go together; set both or neither")
    problems += [
        f"{name} is '{path}', no such file on the control node"
        for name, path in (("nvidia_driver_mok_key", key), ("nvidia_driver_mok_certificate", certificate))
        if path and not Path(path).is_file()
    ]
    if problems or not host["secure_boot"]:
        return problems
    if not certificate:
        if host["key_enrolled"]:
            return []
        return [
            "Secure Boot is on and the key that signs the modules is not enrolled; set nvidia_driver_mok_key and "
            "nvidia_driver_mok_certificate to a pair that is, or run dkms generate_mok and mokutil --import "
            "/var/lib/dkms/mok.pub, reboot, enrol it at the console, and run again"
        ]
    print_of = hashlib.sha1(Path(certificate).read_bytes(), usedforsecurity=False).hexdigest()
    if print_of in (text.replace(":", "").lower() for text in host["enrolled"]):
        return []
    return [
        f"Secure Boot is on and nvidia_driver_mok_certificate ({certificate}, SHA1 {print_of}) is not enrolled; copy "
        "it to the host, run mokutil --import FILE, reboot, choose Enroll MOK at the console, and run again"
    ]
