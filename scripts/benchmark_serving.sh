#!/usr/bin/env bash
# Load test of the server on this machine, over loopback: throughput and latency at 1, 8 and 64
# clients, with dynamic batching and one request at a time.
#
#     bash scripts/benchmark_serving.sh [--size mini|minilm|base | --model MODEL] [--seconds 20]
#
# Arguments go to tests/benchmarks/serving.py (--help lists them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

find_python "${TESTS}"
exec "$PYTHON" -m tests.benchmarks.serving "$@"
