#!/usr/bin/env bash
# Train a model whose vectors find the passages that answer a query.
#
#   bash scripts/run_vectors.sh --text my_texts --model results/quickstart --hours 0.5
#   bash scripts/run_vectors.sh --pairs questions.csv --model bert-base-uncased --dry-run
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands vectors "$@"
