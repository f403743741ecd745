#!/usr/bin/env bash
# Fine-tune BERT on a task of GLUE or on your sentences, and score it.
#
#   bash scripts/run_glue.sh    trains the quickstart
#   bash scripts/run_glue.sh --config mrpc --download --dry-run
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands glue "$@"
