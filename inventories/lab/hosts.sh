#!/usr/bin/env bash
# The lab's inventory, made from the state of the lab that $GPUOPS_LAB_NAME names (default: lab).
exec python3 "$(dirname "$0")/../../tests/lab/inventory.py"
