#!/usr/bin/env bash
# Left out: each script takes --seeds.
set -euo pipefail
if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then exec sed -n 's/^# //p' "${BASH_SOURCE[0]}"; fi
echo "error: run_seeds.sh was left out; run the script of the task, such as" \
  "'bash scripts/run_glue.sh --config mrpc --seeds 5'" >&2
exit 2
