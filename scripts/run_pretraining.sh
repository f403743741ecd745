#!/usr/bin/env bash
# Pre-train BERT on your text, or by a recipe on shards.
#
#   bash scripts/run_pretraining.sh    trains the quickstart
#   bash scripts/run_pretraining.sh --text my_texts --hours 2
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_runtime # sets PYTHON
exec "${PYTHON}" -m bert.commands pretraining "$@"
