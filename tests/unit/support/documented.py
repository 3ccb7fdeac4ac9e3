"""What pages for people say: their commands, and which variables there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[3]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md"), *PROJECT.glob("roles/*/README.md")])
ROLES = sorted(path.parent.parent.name for path in PROJECT.glob("roles/*/meta/argument_specs.yml"))

PROGRAM = re.compile(
    r"^(?:# )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?"
    r"((?:\./run|ansible(?:-[a-z]+)?|molecule|sbatch|cp|systemctl|node_health|/(?:opt|usr/local)/\S+)(?: .*|$))"
)
REMARK = re.compile(r"\s{2,}.*$|\s+#\s.*$")


def options(role: str) -> dict[str, Any]:
    """The variables of a role, from its argument specification."""
    text = (PROJECT / "roles" / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["argument_specs"]["main"].get("options", {})
    return found


VARIABLES = {name for role in ROLES for name in options(role)}


def commands(text: str) -> list[str]:
    """Every command of a page for a program of ours or of Ansible's, in blocks and in sentences, without remarks.

    YAML is left out: playbooks are no commands.
    """
    text = re.sub(r"^ *```ya?ml\n.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^ *```\w*\n.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = [line for line in rest.splitlines() if re.match(r" {4,}\S", line)]
    inline = re.findall(r"`([^`\n]+)`", rest)
    lines = "\n".join([*blocks, *indented, *inline]).replace("\\\n", " ").splitlines()
    found = [PROGRAM.match(line.strip()) for line in lines]
    return list(dict.fromkeys(REMARK.sub("", match[1]) for match in found if match))
