#!/usr/bin/env bash
# Left out: each script takes --seeds.
set -euo pipefail
echo "error: run_seeds.sh was left out; run the script of the task, such as" \
  "'bash scripts/run_glue.sh --config mrpc --seeds 5'" >&2
exit 2
