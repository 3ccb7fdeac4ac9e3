# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of an nvidia-smi report: numbers with units, yes and no, and the sentences that stand in place of a value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._nvidia_smi_xml import Node

# In place of a value: what the driver could not say, and the problem that this is. Null: it is simply not there.
_SENTENCES: tuple[tuple[re.Pattern[str], str | None], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"gpu is lost\b.*|.*fallen off the bus.*", "gpu_lost"),
        (r"corrupted inforom|inforom is corrupt(ed)?", "inforom_corrupt"),
        (r"unknown error\b.*|err!.*", "unknown_error"),
        (r"gpu requires reset|reset required", "unknown_error"),
        (r"insufficient permissions?|no permissions?", "not_permitted"),
        (r"n/a|none|not (available|found|supported|applicable)|(function|value) not (found|supported)", None),
        (r"requested functionality has been deprecated|deprecated\b.*", None),
    )
)
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]{1,9})?(?![0-9])")
_FLAGS = {"enabled": True, "yes": True, "active": True, "on": True, "true": True}
_FLAGS.update({"disabled": False, "no": False, "not active": False, "off": False, "false": False})


def sentence_code(text: str) -> tuple[bool, str | None]:
    """Whether a text stands in place of a value, and the problem code that it means, if any."""
    bare = text.strip().strip("[]").strip()
    for pattern, code in _SENTENCES:
        if pattern.fullmatch(bare):
            return True, code
    return False, None


class Values:
    """Reads values below one element, and remembers which could not be had and why.

    A path of alternatives, as several drivers name the same thing differently, is tried in order.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.refused: dict[str, list[str]] = {}  # problem code -> the elements concerned

    def text(self, *paths: str) -> str | None:
        for path in paths:
            raw = self._node.value(path)
            if raw is None:
                continue
            is_sentence, code = sentence_code(raw)
            if not is_sentence:
                return raw
            if code is not None:
                self.refused.setdefault(code, []).append(path)
        return None

    def number(self, *paths: str) -> float | None:
        """The leading number of a value such as ``700.00 W``; null when the value does not begin with one."""
        text = self.text(*paths)
        match = _NUMBER.match(text) if text else None
        return float(match.group()) if match else None

    def integer(self, *paths: str) -> int | None:
        number = self.number(*paths)
        return int(number) if number is not None else None

    def flag(self, *paths: str) -> bool | None:
        text = self.text(*paths)
        return _FLAGS.get(text.lower()) if text else None

    def total(self, *paths: str) -> int | None:
        """Sum of the counters that have a value; null when none has."""
        counts = [count for count in map(self.integer, paths) if count is not None]
        return sum(counts) if counts else None
