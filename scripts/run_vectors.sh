#!/usr/bin/env bash
# Train vectors for search on own text or pairs, and measure them. See `bash scripts/run_vectors.sh --help`.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands vectors "$@"
