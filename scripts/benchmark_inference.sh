#!/usr/bin/env bash
# Compares inference on this CPU: ours (static program, Paddle Inference, ONNX; float32, bfloat16, INT8), transformers on
# PyTorch, and ONNX Runtime on transformers' export: same weights, same batches, in one run.
#
#     bash scripts/benchmark_inference.sh --checkpoint MODEL [--labelled FILE.tsv --batch-sizes 8 --threads 1]
#
# Arguments go to tests/benchmarks/inference.py (--help lists them). Settings are environment variables:
#   BERT_TORCH_VENV   PyTorch's own environment, made if it is missing (.venv-torch)
#   BERT_TORCH_WHEELS a folder with PyTorch's wheel, searched before the package index
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python requirements-test.txt
venv=${BERT_TORCH_VENV:-.venv-torch}
if [[ ! -e "$venv/.complete-inference" ]]; then
  echo "Installing PyTorch, transformers and ONNX Runtime into $venv (once, some minutes)" >&2
  "$PYTHON" -m venv "$venv"
  "$venv/bin/pip" install --quiet ${BERT_TORCH_WHEELS:+--find-links "${BERT_TORCH_WHEELS}"} \
    -r tests/benchmarks/requirements-inference.txt
  touch "$venv/.complete-inference"
fi
exec "$PYTHON" -m tests.benchmarks.inference --torch-python "$venv/bin/python" "$@"
