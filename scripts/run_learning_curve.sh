#!/usr/bin/env bash
# Compares our learning curves with those of an independent implementation on PyTorch: same weights,
# same batches.
#
#     bash scripts/run_learning_curve.sh --output-dir results/learning_curve [--updates 300 --seeds 5]
#
# Arguments go to tests/benchmarks/learning_curve.py (--help lists them). Settings are environment
# variables:
#   BERT_TORCH_VENV   PyTorch's own environment, made if it is missing (.venv-torch)
#   BERT_TORCH_WHEELS a folder with PyTorch's wheel, searched before the package index
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python "${TESTS}"
find_torch
exec "${PYTHON}" -m tests.benchmarks.learning_curve --torch-python "${TORCH_PYTHON}" "$@"
