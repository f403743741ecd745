#!/usr/bin/env bash
# The fault matrix of tests/README.md at full counts: one to two hours. Arguments are pytest's (-k NAME).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  --rows | --full | --broken | --report)
    echo "error: $1: type the test of the row, which tests/README.md names: bash scripts/run_tests.sh tests/faults; without" \
      "a flag this script runs all rows at full counts" >&2
    exit 2
    ;;
esac
export BERT_FULL_FAULTS=1
exec bash scripts/run_tests.sh tests/faults tests/checkpoints/test_{directories,state,golden_checkpoints}.py \
  tests/conversion/test_{round_trips,parity,hostile}.py tests/inference/test_exporting.py tests/data/test_data_faults.py \
  tests/data/test_{import_text,preprocess}.py tests/tokenization/test_wordpiece.py tests/finetuning/squad \
  tests/finetuning/glue/test_reading.py tests/data/fetching tests/config/test_{command_line,training_settings}.py \
  tests/launching/test_process_deaths.py tests/test_hostile_files.py "$@"
