#!/usr/bin/env bash
# Run a recipe with several seeds; mean, spread and failures. See `bash scripts/run_seeds.sh --help`.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
launch seeds "$@"
