#!/usr/bin/env bash
# Lint, types, shell scripts and tests.
#   bash scripts/run_tests.sh                           all tests but the slow ones
#   bash scripts/run_tests.sh --quick                   without the long ones too: run it on every change
#   bash scripts/run_tests.sh tests/samples -k masking  only these tests, no lint: any other arguments are pytest's
#   bash scripts/run_tests.sh tests/cluster -m slow     slow tests
#   bash scripts/run_tests.sh --paddle 3.1              what depends on Paddle's version, on that version (or 2.6)
set -euo pipefail

# What Paddle's version may change: programs, ranks, checkpoints, training and fine-tuning.
OF_PADDLE=(tests/test_program.py tests/model tests/runtime tests/checkpoints tests/training tests/finetuning)

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then # nothing is installed for it
  sed -n -e 's/^# //p' -e '/^set /q' "${BASH_SOURCE[0]}"
  echo "Arguments of pytest: .venv/bin/python -m pytest --help"
  exit
fi
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
packages="${TESTS}"
version=""
if [[ "${1:-}" == --paddle ]]; then
  version="${2:-}"
  [[ "${version}" == 2.6 || "${version}" == 3.1 ]] || fail "--paddle ${version} must be 2.6 or 3.1"
  if [[ "${version}" == 3.1 ]]; then packages="train paddle3 onnx test"; fi
  shift 2
fi
find_python "${packages}"
cd "${REPOSITORY}"
PATH="$(dirname "${PYTHON}"):${PATH}"
export PATH

tests="not slow"
parallel=(--numprocesses logical --maxprocesses 4 --dist loadfile) # a file's tests share what its fixtures make
if [[ -n "${version}" ]]; then
  if (($# == 0)); then set -- "${OF_PADDLE[@]}" "${parallel[@]}"; fi
  exec "${PYTHON}" -m pytest -m "${tests}" "$@"
elif [[ "${1:-}" == --quick ]]; then
  tests="not slow and not long"
  shift
elif (($# > 0)); then
  exec "${PYTHON}" -m pytest -m "${tests}" "$@"
fi

ruff check .
ruff format --check .
mypy &
types=$!
shellcheck --external-sources run.sub scripts/*.sh scripts/docker/*.sh scripts/configs/*.sh data/*.sh .ci/run
wait "${types}"
exec "${PYTHON}" -m pytest -m "${tests}" --durations 20 "${parallel[@]}" "$@"
