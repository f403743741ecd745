#!/usr/bin/env bash
# Train a classifier on a table of your labelled texts, and score it.
#
#   bash scripts/run_classify.sh --train tickets.csv --dry-run
#   bash scripts/run_classify.sh --train tickets.csv --label-column queue --hours 1
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands classify "$@"
