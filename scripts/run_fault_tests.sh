#!/usr/bin/env bash
# The tests that the fault matrix of tests/README.md names, at full counts: one to two hours.
# Arguments are pytest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  -h | --help) sed -n 's/^# //p' scripts/run_fault_tests.sh | fold -s -w 100 && exit ;;
  --rows | --full | --broken | --report)
    echo "error: $1: type the test of the row, which tests/README.md names: bash scripts/run_tests.sh tests/faults; without" \
      "a flag this script runs all rows at full counts" >&2
    exit 2
    ;;
esac
export BERT_FULL_FAULTS=1
mapfile -t files < <(awk -F '|' '/^\| [0-9]+ \|/ {print $8}' tests/README.md | grep -o '[a-z_/]*\.py' | sort -u)
exec bash scripts/run_tests.sh tests/inference/test_exporting.py tests/conversion/test_parity.py "${files[@]/#/tests/}" "$@"
