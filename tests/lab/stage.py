# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab says while it works."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stage(text: str) -> Iterator[None]:
    """One line of progress with the seconds it took."""
    print(f"  {text} …", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print(" failed")
        raise
    print(f" {time.monotonic() - started:.1f} s", flush=True)
