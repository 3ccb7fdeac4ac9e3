#!/usr/bin/env bash
# ./run site: ansible-playbook site.yml; without an inventory of the user's own, on a lab on this machine.
set -euo pipefail

for word in "$@"; do
  case $word in
    -i | -i?* | --inventory | --inventory=* | --inventory-file*) exec ansible-playbook site.yml "$@" ;;
  esac
done

python3 tests/lab/lab.py up --nodes "${GPUOPS_LAB_NODES:-2}" --gpus "${GPUOPS_LAB_GPUS:-h100x4}" --artifacts
ansible-playbook site.yml -i inventories/lab "$@"
echo
echo "Gate's report: $PWD/reports/lab/acceptance.html (and .json, .junit.xml, .prom)"
echo "Go on:         ./run lab ssh ctl sinfo      ./run lab down"
