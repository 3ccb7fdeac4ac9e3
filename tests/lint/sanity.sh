#!/usr/bin/env bash
# ansible-test sanity on a copy of what git tracks, since it wants the path .../ansible_collections/gpuops/cluster and follows no link.
# The lab, its scenarios' tests and benchmarks are left out: no part of the archive; ruff and mypy look at them.
# Its virtual environments begin with a download of get-pip from a host of its own; Python's ensurepip does the same without it.
set -euo pipefail
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
target=$copy/ansible_collections/gpuops/cluster
mkdir -p "$target"
git ls-files --cached --others --exclude-standard -z -- . ':!tests/lab' ':!tests/testinfra' ':!tests/benchmarks' ':!inventories/lab' | while IFS= read -r -d '' f; do
  if [ -f "$f" ]; then printf '%s\0' "$f"; fi
done | tar --null -T - -cf - | tar -xf - -C "$target"

# The file's name carries the pip release that this ansible-test wants.
pip_version=$(python - <<'PY'
import re
from pathlib import Path

import ansible_test

text = (Path(ansible_test.__file__).parent / "_internal/python_requirements.py").read_text()
print(re.search(r"pip['\"]?[:=]\s*['\"]([0-9.]+)['\"]", text).group(1))
PY
)
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
bootstrap=$cache/get_pip_${pip_version//./_}.py
[ -e "$bootstrap" ] || cat >"$bootstrap" <<'PY'
import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip", "--upgrade"], stdout=subprocess.DEVNULL)
subprocess.check_call([sys.executable, "-m", "pip", "install", *[a for a in sys.argv[1:] if not a.startswith("--no-")]])
PY

cd "$target"
version=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PIP_QUIET=1 PIP_NO_WARN_SCRIPT_LOCATION=1 ansible-test sanity --venv --python "$version" --color no
