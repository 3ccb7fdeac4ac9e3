#!/usr/bin/env bash
# ./run docs site: the README, docs/, the roles' pages and the reference of all plugins as one site of HTML pages. A warning is a failure.
set -euo pipefail
root=$PWD
tools=$root/.cache/docsite-venv site=$root/.cache/docsite
want=$(sha256sum requirements/docs.txt | cut -d' ' -f1)

if [ "$(cat "$tools/.locked" 2>/dev/null)" != "$want" ]; then
  echo "== Making $tools from requirements/docs.txt"
  rm -rf "$tools"
  python -m venv "$tools"
  "$tools/bin/python" -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/docs.txt
  echo "$want" >"$tools/.locked"
fi

rm -rf "$site"
mkdir -p "$site/source"
cp tests/docsite/conf.py "$site/source"
cp --parents README.md README.zh-CN.md CHANGELOG.md docs/*.md docs/*.png roles/*/README.md tests/lab/README.md inventories/*/hosts.yml "$site/source"
chmod -R go-w "$site/source" # antsibull-docs wants that

# ansible-core and the collections come from .venv.
PATH=$tools/bin:$PATH ANSIBLE_COLLECTIONS_PATH=$root/.ansible/collections "$tools/bin/antsibull-docs" --config-file tests/docsite/antsibull-docs.cfg \
  collection --fail-on-error --use-current --dest-dir "$site/source" gpuops.cluster
cat >>"$site/source/README.md" <<'TEXT'

```{toctree}
:hidden:
:glob:

docs/getting-started
docs/*
roles/*/README
collections/gpuops/cluster/index
tests/lab/README
CHANGELOG
README.zh-CN
```
TEXT
"$tools/bin/sphinx-build" --fail-on-warning --keep-going -q -D root_doc=README -b html "$site/source" "$site/html"
echo "The site: .cache/docsite/html/README.html"
