#!/usr/bin/env bash
# ./run test: everything that CI runs, cheap parts first; one part alone when it is named.
set -uo pipefail

# Without a terminal, Molecule otherwise draws boxes of 80 columns.
[ -t 1 ] || export NO_COLOR=1

usage() {
  echo "usage: ./run test [lint|sanity|unit|molecule [scenario…]|core RELEASE]" >&2
  exit 2
}

HEAVY='driver_debian13|driver_dkms|driver_vm|fabric_vm|faults|fleet|host_tuning_vm|nccl_gate|pytorch_modes|slurm_day_two|upgrade'
passed=0 failed=0
report=() reasons=()

# What unit tests call besides Python: they build programs and ask links.
need_tools() {
  local missing=() tool
  for tool in make gcc g++ ethtool git; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  command -v ps >/dev/null || missing+=(procps)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    printf '== Installing %s\n' "${missing[*]}"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" libc6-dev >/dev/null
  else
    echo "the unit tests want: sudo apt-get install -y ${missing[*]} libc6-dev" >&2
  fi
}

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
  check "changed and not in them" python tests/lint/fragments.py
  check "ansible-lint" ansible-lint --offline --profile production
}

sanity() { check "ansible-test sanity" tests/lint/sanity.sh; }

unit() {
  need_tools
  check "unit tests" python -m pytest -n 2 tests/unit
}

scenarios() { for file in molecule/*/molecule.yml; do basename "$(dirname "$file")"; done; }

# The lines of a log that say why it failed: whoever sees only the end of a run sees them.
why() {
  grep -aE '^lab: |^fatal: |^\[ERROR\]|^FAILED |^E  |did not come up|"msg": ' "$1" | awk '!seen[$0]++' | tail -n 6 | cut -c1-300 | sed 's/^/        /'
}

# Runs scenarios side by side, each on a lab of its own: they wait for connections more than they compute.
# Their output comes when they end, whole when they failed.
side_by_side() {
  local logs name running=0
  logs=$(mktemp -d)
  for name in "$@"; do
    if [ "$running" -ge "${GPUOPS_TEST_JOBS:-2}" ]; then wait -n; running=$((running - 1)); fi
    (
      start=$SECONDS
      molecule test -s "$name" >"$logs/$name.log" 2>&1
      echo "$? $((SECONDS - start))" >"$logs/$name.result"
      printf '== molecule %s: exit %s after %s s\n' "$name" $(cat "$logs/$name.result")
    ) &
    running=$((running + 1))
  done
  wait
  for name in "$@"; do
    read -r code seconds <"$logs/$name.result" || code=1 seconds=0
    if [ "$code" = 0 ]; then
      printf '\n== molecule %s\n' "$name"
      grep -E '[0-9]+ passed|^SUMMARY|^skipped:|: ok=' "$logs/$name.log"
      passed=$((passed + 1)) && report+=("$(printf 'ok      %-28s %4d s' "molecule $name" "$seconds")")
    else
      printf '\n== molecule %s FAILED\n' "$name"
      cat "$logs/$name.log"
      failed=$((failed + 1)) && report+=("$(printf 'FAILED  %-28s %4d s' "molecule $name" "$seconds")")
      reasons+=("$(printf 'molecule %s:' "$name")" "$(why "$logs/$name.log")")
    fi
  done
  rm -rf "$logs"
}

molecule_scenarios() {
  local name
  for name in "$@"; do
    if [ ! -f "molecule/$name/molecule.yml" ]; then
      echo "no scenario '$name'; there are: $(scenarios | tr '\n' ' ')" >&2
      exit 2
    fi
  done
  if [ $# -eq 1 ]; then
    check "molecule $1" molecule test -s "$1"
  elif [ $# -gt 1 ]; then
    side_by_side "$@"
  else
    # The whole site first, it takes longest. Heavy scenarios (virtual machines, DKMS) only when they are named.
    # shellcheck disable=SC2046 # words are wanted
    side_by_side default $(scenarios | grep -vxE "default|$HEAVY")
  fi
}

# What depends on ansible-core, over another release of it.
over_core() {
  local bin
  bin=$(tests/core.sh "$1") || exit 1
  export PATH="$bin:$PATH"
  ansible --version | head -n 1
  unit
  sanity
  molecule_scenarios default
}

case ${1:-all} in
  lint | sanity | unit) [ $# -eq 1 ] || usage; "$1" ;;
  molecule) shift; molecule_scenarios "$@" ;;
  core) [ $# -eq 2 ] || usage; over_core "$2" ;;
  all) [ $# -eq 0 ] || usage; lint; sanity; unit; molecule_scenarios ;;
  *) usage ;;
esac

printf '\n'
[ ${#reasons[@]} -eq 0 ] || printf '%s\n' "${reasons[@]}" ''
printf '%s\n' "${report[@]}"
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
