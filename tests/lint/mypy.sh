#!/usr/bin/env bash
# mypy strict: plugins from where they have the name that their own imports use, tests from the root.
set -euo pipefail
config=$PWD/pyproject.toml
mypy tests
cd .ansible/collections
mypy --config-file "$config" --cache-dir "${config%/*}/.mypy_cache/plugins" ansible_collections/gpuops/cluster/plugins
