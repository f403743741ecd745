#!/usr/bin/env bash
# Fine-tune BERT to answer questions on SQuAD, and score it.
#
#   bash scripts/run_squad.sh    trains the quickstart
#   bash scripts/run_squad.sh --config squad --download --dry-run
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands squad "$@"
