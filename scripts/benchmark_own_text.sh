#!/usr/bin/env bash
# Compares the plan for own text with its neighbours: model, rate and vocabulary one step up and down, equal processor time.
#
#     bash scripts/benchmark_own_text.sh --text FOLDER --minutes 10 --output-dir D
#
# Arguments go to tests/benchmarks/own_text_neighbours.py (--help lists them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python train paddle
exec "$PYTHON" -m tests.benchmarks.own_text_neighbours "$@"
