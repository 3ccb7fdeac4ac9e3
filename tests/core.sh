#!/usr/bin/env bash
# An environment beside .venv with another release of ansible-core (M.m), which brings the other tools as they are today, not locked.
# Prints where its programs are. PYTHON names another interpreter: 2.20 and newer want 3.12.
set -euo pipefail
release=$1
venv=$PWD/.venv-core-$release
if [ ! -e "$venv/.made" ]; then
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  # shellcheck disable=SC2046 # words are wanted
  "$venv/bin/python" -m pip --quiet --disable-pip-version-check install "ansible-core==$release.*" ansible $(grep -vE '^(#|ansible)' requirements/tools.in) >&2
  touch "$venv/.made"
fi
echo "$venv/bin"
