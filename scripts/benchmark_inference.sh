#!/usr/bin/env bash
# Compares inference on this CPU: ours (static program, Paddle Inference, ONNX; float32, bfloat16,
# INT8), transformers on PyTorch, and ONNX Runtime on transformers' export: same weights, same
# batches, in one run.
#
#     bash scripts/benchmark_inference.sh --checkpoint MODEL [--labelled FILE.tsv --threads 1]
#
# Arguments go to tests/benchmarks/inference.py (--help lists them). Settings are environment
# variables:
#   BERT_TORCH_VENV   PyTorch's own environment, made if it is missing (.venv-torch)
#   BERT_TORCH_WHEELS a folder with PyTorch's wheel, searched before the package index
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python "${TESTS}"
find_torch inference
exec "${PYTHON}" -m tests.benchmarks.inference --torch-python "${TORCH_PYTHON}" "$@"
