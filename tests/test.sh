#!/usr/bin/env bash
# ./run test: everything that CI runs, cheap parts first; one part alone when it is named.
set -uo pipefail

# Without a terminal, Molecule otherwise draws boxes of 80 columns.
[ -t 1 ] || export NO_COLOR=1

usage() {
  echo "usage: ./run test [lint|sanity|unit|molecule [scenario…]]" >&2
  exit 2
}

passed=0 failed=0
report=()

# Runs one check, keeps going when it fails, and remembers its result and its seconds for the closing lines.
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1)) && report+=("$(printf 'ok      %-28s %4d s' "$name" $((SECONDS - start)))")
  else
    failed=$((failed + 1)) && report+=("$(printf 'FAILED  %-28s %4d s' "$name" $((SECONDS - start)))")
  fi
}

lint() {
  check "ruff check" ruff check --quiet .
  check "ruff format" ruff format --quiet --check .
  check "mypy" tests/lint/mypy.sh
  check "role READMEs" python tests/docs.py --check
  check "changelog fragments" antsibull-changelog lint
  check "ansible-lint" ansible-lint --offline --profile production
}

sanity() { check "ansible-test sanity" tests/lint/sanity.sh; }

unit() { check "unit tests" python -m pytest -n 2 tests/unit; }

scenarios() { for file in molecule/*/molecule.yml; do basename "$(dirname "$file")"; done; }

molecule_scenarios() {
  local name
  # The whole site first; heavy scenarios (virtual machines, DKMS) only when they are named.
  [ $# -gt 0 ] || set -- default $(scenarios | grep -vxE 'default|driver_dkms|driver_vm|fabric_vm')
  for name in "$@"; do
    if [ ! -f "molecule/$name/molecule.yml" ]; then
      echo "no scenario '$name'; there are: $(scenarios | tr '\n' ' ')" >&2
      exit 2
    fi
    check "molecule $name" molecule test -s "$name"
  done
}

case ${1:-all} in
  lint | sanity | unit) [ $# -eq 1 ] || usage; "$1" ;;
  molecule) shift; molecule_scenarios "$@" ;;
  all) [ $# -eq 0 ] || usage; lint; sanity; unit; molecule_scenarios ;;
  *) usage ;;
esac

printf '\n'
printf '%s\n' "${report[@]}"
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
