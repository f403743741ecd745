#!/usr/bin/env bash
# Phase 1 of the published recipe for BERT-large, as NVIDIA's script of this name; more flags are
# run_pretraining.sh's.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/run_pretraining.sh" --config large --phase1 "$@"
