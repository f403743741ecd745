#!/usr/bin/env bash
# Pre-train BERT. Without arguments: the quickstart. See `bash scripts/run_pretraining.sh --help`.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands pretraining "$@"
