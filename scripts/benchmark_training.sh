#!/usr/bin/env bash
# Compares our training with PaddleNLP's (dygraph) and Hugging Face's (PyTorch) on this CPU: same model, batches, optimizer.
#
#     bash scripts/benchmark_training.sh [--threads 1 2 --profile]
#
# Arguments go to tests/benchmarks/compare_training.py (--help lists them). Settings are environment variables:
#   BERT_TORCH_VENV   PyTorch's own environment, made if it is missing (.venv-torch)
#   BERT_TORCH_WHEELS a folder with PyTorch's wheel, searched before the package index
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python "${TESTS}"
find_torch
exec "$PYTHON" -m tests.benchmarks.compare_training --torch-python "${TORCH_PYTHON}" "$@"
