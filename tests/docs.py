"""Write each role's variables into its README, between the markers, from its argument specification.

`python tests/docs.py` writes, `python tests/docs.py --check` only says what is stale and exits 1.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- variables -->", "<!-- /variables -->"


def plain(text: str | list[str]) -> str:
    """A description as one line of Markdown: C(), O() and the like become code; in them \\) is a parenthesis."""
    joined = " ".join(text) if isinstance(text, list) else text
    marked = r"\b[A-Z]\(((?:[^\\)]|\\.)*)\)"
    text = re.sub(marked, lambda match: "`" + re.sub(r"\\(.)", r"\1", match[1]) + "`", " ".join(joined.split()))
    return text.replace("|", "\\|")


def shown(value: Any) -> str:
    """A default as YAML on one line, in code marks."""
    if value is None:
        return ""
    text = " ".join(yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).split())
    text = text.removesuffix(" ...")
    return "`" + text.replace("|", "\\|") + "`"


def rows(options: dict[str, Any], prefix: str = "") -> list[str]:
    """Table rows of options, suboptions after their parent."""
    lines = []
    for name, option in options.items():
        kind = option.get("type", "str") + (f" of {option['elements']}" if "elements" in option else "")
        default = "required" if option.get("required") else shown(option.get("default"))
        choices = f" One of {', '.join(f'`{c}`' for c in option['choices'])}." if "choices" in option else ""
        lines.append(f"| `{prefix}{name}` | {kind} | {default} | {plain(option['description'])}{choices} |")
        lines += rows(option.get("options", {}), f"{prefix}{name}.")
    return lines


def section(role: Path) -> str:
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    table = rows(spec.get("options", {}))
    if not table:
        return f"{BEGIN}\n\nThe role has no variables.\n\n{END}"
    head = "| Variable | Type | Default | Meaning |\n| --- | --- | --- | --- |"
    return f"{BEGIN}\n\n{head}\n" + "\n".join(table) + f"\n\n{END}"


def main(arguments: list[str]) -> int:
    stale = []
    for role in sorted((PROJECT / "roles").iterdir()):
        readme = role / "README.md"
        text = readme.read_text(encoding="utf-8") if readme.exists() else ""
        if BEGIN not in text or END not in text:
            stale.append(f"{readme.relative_to(PROJECT)}: missing, or without the markers {BEGIN} and {END}")
            continue
        before, rest = text.split(BEGIN, 1)
        wanted = before + section(role) + rest.split(END, 1)[1]
        if wanted != text:
            if arguments == ["--check"]:
                stale.append(f"{readme.relative_to(PROJECT)}: variables are stale; run ./run docs")
            else:
                readme.write_text(wanted, encoding="utf-8")
    print("\n".join(stale) if stale else "role READMEs are up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
