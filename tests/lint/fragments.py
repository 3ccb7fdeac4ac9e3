# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role, playbook and public plugin that has changed since the last release is named in a changelog fragment.

Prints those that are not, and then exits with 1. A change that users do not notice goes into the section `trivial`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).parents[2]
NOTICED = re.compile(r"roles/(\w+)/(?!README)|plugins/modules/(\w+)\.py|(playbooks)/")


def changed(paths: Iterable[str]) -> list[str]:
    """Names of what these files belong to."""
    found = (NOTICED.match(path) for path in paths)
    return sorted({next(filter(None, match.groups())) for match in found if match})


def unnamed(names: Iterable[str], fragments: str) -> list[str]:
    return [name for name in names if not re.search(rf"\b{name}\b", fragments)]


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    try:
        shallow = git("rev-parse", "--is-shallow-repository") == "true"
        release = git("log", "-1", "--format=%H", "--", "changelogs/changelog.yaml")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: what changed since the last release is not known: {error}")
        return 0
    if shallow or not release:
        print("skipped: what changed since the last release is not known: the history is not here")
        return 0
    paths = git("diff", "--name-only", "--diff-filter=a", release, "--").splitlines()  # new modules are listed anyway
    fragments = "\n".join(path.read_text(encoding="utf-8") for path in PROJECT.glob("changelogs/fragments/*.yml"))
    missing = unnamed(changed(paths), fragments)
    if missing:
        print(f"changed since {release[:7]}, and named in no file of changelogs/fragments: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
