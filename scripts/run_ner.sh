#!/usr/bin/env bash
# Fine-tune BERT to find named entities and score it. Without arguments: the quickstart. See `bash scripts/run_ner.sh --help`.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands ner "$@"
