# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: a source file of apt with more components."""

from __future__ import annotations

DOCUMENTATION = r"""
name: apt_components
short_description: A source file of apt with more components
description:
  - Adds components wherever one of some repositories has C(main); leaves every other word of the file as it is.
  - Understands one-line and deb822 files.
positional: _input, uris, components
options:
  _input:
    description: The text of the file.
    type: str
    required: true
  uris:
    description: Repositories to add the components to.
    type: list
    elements: str
    required: true
  components:
    description: Components to add where they are missing.
    type: list
    elements: str
    required: true
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: The sources with non-free
  ansible.builtin.debug:
    msg: "{{ text | gpuops.cluster.apt_components(['http://mirror/debian'], ['contrib', 'non-free']) }}"
"""

RETURN = r"""
_value:
  description: The new text of the file.
  type: str
"""

import re
from typing import Any


def apt_components(text: str, uris: list[str], components: list[str]) -> str:
    """A source file of apt, one-line or deb822, with components added where one of the URIs has main."""
    wanted = {uri.rstrip("/") for uri in uris}

    def added(words: str) -> str:
        return " ".join([*words.split(), *(word for word in components if word not in words.split())])

    def one_line(match: re.Match[str]) -> str:
        head, uri, words = match.groups()
        return f"{head}{added(words)}" if uri.rstrip("/") in wanted and "main" in words.split() else match.group()

    def stanza(match: re.Match[str]) -> str:
        text = match.group()
        uris = re.search(r"(?im)^URIs:(.*)$", text)
        if not uris or not wanted & {uri.rstrip("/") for uri in uris.group(1).split()}:
            return text
        return re.sub(
            r"(?im)^(Components: *)(.*\bmain\b.*)$", lambda found: f"{found.group(1)}{added(found.group(2))}", text
        )

    if re.search(r"(?im)^Types:", text):
        return re.sub(r"(?:[^\n]+\n?)+", stanza, text)
    return re.sub(r"(?m)^(deb +(?:\[[^\]]*\] +)?(\S+) +\S+ +)([^#\n]*?)(?=\s*(?:#.*)?$)", one_line, text)


class FilterModule:
    """The filter, under its name."""

    def filters(self) -> dict[str, Any]:
        return {"apt_components": apt_components}
