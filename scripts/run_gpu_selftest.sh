#!/usr/bin/env bash
# Examine a machine with GPUs: kernels, precisions, ranks, resumption, speed and memory.
#
#   bash scripts/run_gpu_selftest.sh                   all checks on all visible GPUs; --gpus N: fewer
#   bash scripts/run_gpu_selftest.sh --list            the checks: test_train[amp] is train-amp
#   bash scripts/run_gpu_selftest.sh --only ranks      checks whose names begin so; may be repeated
#   bash scripts/run_gpu_selftest.sh --device cpu      what can be tried without a GPU
#   bash scripts/run_gpu_selftest.sh --output-dir DIR  data, logs, results (results/gpu_selftest)
#
# It ends with a table, and results.jsonl to send back. The checks are the tests of
# tests/gpu/selftest.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
print_usage "$@"
words=() verbosity=1
for word in "$@"; do
  case "${word}" in
    --list) words+=(--collect-only) verbosity=-1 ;;
    --again) fail "--again: every start runs its checks again; --only NAME runs some" ;;
    *) words+=("${word}") ;;
  esac
done
needed="$(runtime_extras)" # a failure in an argument would not end the script
find_python "${needed} test"
cd "${REPOSITORY}"
exec "${PYTHON}" -m pytest -c pyproject.toml -p no:cacheprovider --verbosity "${verbosity}" --tb short -rN \
  tests/gpu/selftest "${words[@]}"
