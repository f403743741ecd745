#!/usr/bin/env bash
# Fine-tune BERT to find named entities, and score it.
#
#   bash scripts/run_ner.sh    trains the quickstart
#   bash scripts/run_ner.sh --train-file train.conll --eval-file dev.conll --model bert-base-cased
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands ner "$@"
