#!/usr/bin/env bash
# Train a classifier on a table of your own labelled texts and score it. See `bash scripts/run_classify.sh --help`.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands classify "$@"
