# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the report of ``nvidia-smi -q -x`` as untrusted input: damaged, cut, or wrapped in other text.

The report is read by expat. Entity declarations are refused, no external DTD is ever opened, and depth and size are
limited. Where the document as a whole is not well-formed, each ``<gpu>`` is read by itself, so that one bad byte costs
the tail of one GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from xml.parsers import expat

REPORT_LIMIT = 4 * 1024 * 1024  # bytes
DEPTH_LIMIT = 32
ELEMENT_LIMIT = 100_000
GPU_LIMIT = 256  # in a report that has to be read piece by piece
# Long, and of no use here: the clock tables alone are most of a report.
SKIPPED = frozenset({"supported_clocks", "processes", "accounted_processes"})

_ROOT_START = re.compile(rb"<nvidia_smi_log(?:\s[^<>]*)?>")
_ROOT_END = re.compile(rb"</nvidia_smi_log\s*>")
_PROLOGUE = re.compile(rb"<\?xml|<!DOCTYPE")
_GPU_START = re.compile(rb"<gpu[\s>]")
# Characters that XML forbids even in text; nvidia-smi prints process names as they are.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class _RefusedError(Exception):
    """The document uses a feature that a report never needs and an attacker does."""


@dataclass
class Node:
    """One element."""

    tag: str
    id: str = ""
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def all(self, tag: str) -> list[Node]:
        return [child for child in self.children if child.tag == tag]

    def find(self, path: str) -> Node | None:
        """First element at a path of tags such as ``pci/pci_bus_id``; ``a//b`` is the first b at any depth below a."""
        tag, _slash, rest = path.partition("/")
        node = next((child for child in self.children if child.tag == tag), None)
        if node is None or not rest:
            return node
        return node.search(rest[1:]) if rest.startswith("/") else node.find(rest)

    def search(self, tag: str) -> Node | None:
        """First element with a tag at any depth."""
        for child in self.children:
            found = child if child.tag == tag else child.search(tag)
            if found is not None:
                return found
        return None

    def value(self, path: str) -> str | None:
        """Text of the element at a path without surrounding blanks; null when there is none."""
        node = self.find(path)
        return (node.text.strip() or None) if node is not None else None


@dataclass
class Report:
    """What could be read.

    ``damage`` is empty when the report was whole; else one sentence. ``remarks`` is the text outside of its elements.
    ``found`` tells whether there was a report at all.
    """

    root: Node = field(default_factory=lambda: Node("nvidia_smi_log"))
    found: bool = False
    damage: str = ""
    remarks: str = ""

    @property
    def gpus(self) -> list[Node]:
        return self.root.all("gpu")


class _Reader:
    """Builds the tree, and keeps what it has when the text breaks off."""

    def __init__(self) -> None:
        self.top = Node("")
        self._stack = [self.top]
        self._skipping = 0
        self._elements = 0
        self._text: list[str] = []

    def read(self, data: bytes) -> str:
        """Read all that is readable; returns what is wrong with it, or an empty string."""
        parser = expat.ParserCreate("utf-8")
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.EntityDeclHandler = self._refuse_entity
        parser.ExternalEntityRefHandler = self._refuse_reference
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            self._flush()
            return f"{expat.ErrorString(error.code)} in line {error.lineno}"
        return ""

    @staticmethod
    def _refuse_entity(name: str, *_rest: object) -> None:
        raise _RefusedError(f"the report declares an entity ({name[:40]}), which is refused")

    @staticmethod
    def _refuse_reference(*_rest: object) -> int:
        raise _RefusedError("the report refers to an external entity, which is refused")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._flush()
        if self._skipping or tag in SKIPPED:
            self._skipping += 1
            return
        self._elements += 1
        if len(self._stack) > DEPTH_LIMIT:
            raise _RefusedError(f"the report is nested more than {DEPTH_LIMIT} levels deep")
        if self._elements > ELEMENT_LIMIT:
            raise _RefusedError(f"the report has more than {ELEMENT_LIMIT} elements")
        node = Node(tag, attributes.get("id", ""))
        self._stack[-1].children.append(node)
        self._stack.append(node)

    def _end(self, _tag: str) -> None:
        self._flush()
        if self._skipping:
            self._skipping -= 1
        else:
            self._stack.pop()

    def _characters(self, data: str) -> None:
        if not self._skipping:
            self._text.append(data)

    def _flush(self) -> None:
        if self._text:
            self._stack[-1].text += "".join(self._text)
            self._text.clear()


def _split(data: bytes) -> tuple[bytes, bytes, str]:
    """The prologue, the document from its root on, and the text around both."""
    root = _ROOT_START.search(data)
    if root is None:
        return b"", b"", data.decode("utf-8", "replace").strip()
    prologue = _PROLOGUE.search(data, 0, root.start())
    begin = prologue.start() if prologue else root.start()
    end = _ROOT_END.search(data, root.end())
    stop = end.end() if end else len(data)
    around = data[:begin] + b"\n" + data[stop:]
    return data[begin : root.start()], data[root.start() : stop], around.decode("utf-8", "replace").strip()


def _pieces(body: bytes) -> list[bytes]:
    """The text before the first GPU, then one piece a GPU."""
    starts = [match.start() for match in islice(_GPU_START.finditer(body), GPU_LIMIT)]
    ends = [*starts, len(body)]
    return [body[: ends[0]], *(body[start:end] for start, end in zip(starts, ends[1:]))]


def _salvage(body: bytes) -> Node:
    """Read head and GPUs one by one, each as far as it goes."""
    root = Node("nvidia_smi_log")
    head, *gpus = _pieces(body)
    for piece in (head, *(b"<nvidia_smi_log>" + gpu for gpu in gpus)):
        reader = _Reader()
        reader.read(piece)
        for node in reader.top.all("nvidia_smi_log"):
            root.children.extend(node.children)
            root.text += node.text
    return root


def _loose(root: Node) -> str:
    """Text between the elements, where nvidia-smi writes what went wrong while it printed the report."""
    return "\n".join((root.text, root.value("error_string") or "", *(gpu.text for gpu in root.all("gpu")))).strip()


def read_report(data: bytes) -> Report:
    """Read a report. Never raises; what is wrong with it stands in ``damage``."""
    too_long = len(data) > REPORT_LIMIT
    text = _FORBIDDEN.sub("?", data[:REPORT_LIMIT].decode("utf-8", "replace"))
    prologue, body, remarks = _split(text.encode("utf-8"))
    if not body:
        return Report(remarks=remarks)
    reader = _Reader()
    try:
        damage = reader.read(prologue + body)
        roots = reader.top.all("nvidia_smi_log")
        root = roots[0] if roots and not damage else _salvage(body)
    except _RefusedError as refusal:
        return Report(found=True, damage=str(refusal), remarks=remarks)
    if too_long:
        damage = f"the report is longer than {REPORT_LIMIT} bytes"
    return Report(root=root, found=True, damage=damage, remarks=f"{remarks}\n{_loose(root)}".strip())
