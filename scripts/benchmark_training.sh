#!/usr/bin/env bash
# Compares our training with PaddleNLP's (dygraph) and Hugging Face's (PyTorch) on this CPU: same model, batches, optimizer.
#
#     bash scripts/benchmark_training.sh [--model bert-base-uncased --batch-size 8 --steps 6]
#
# Arguments go to tests/benchmarks/compare_training.py (--help lists them). Settings are environment variables:
#   BERT_TORCH_VENV   PyTorch's own environment, made if it is missing (.venv-torch)
#   BERT_TORCH_WHEELS a folder with PyTorch's wheel, searched before the package index
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python requirements-test.txt
venv=${BERT_TORCH_VENV:-.venv-torch}
if [[ ! -e "$venv/.complete" ]]; then
  echo "Installing PyTorch and transformers into $venv (once, some minutes)" >&2
  "$PYTHON" -m venv "$venv"
  "$venv/bin/pip" install --quiet ${BERT_TORCH_WHEELS:+--find-links "${BERT_TORCH_WHEELS}"} \
    -r tests/benchmarks/requirements-torch.txt
  touch "$venv/.complete"
fi
exec "$PYTHON" -m tests.benchmarks.compare_training --torch-python "$venv/bin/python" "$@"
