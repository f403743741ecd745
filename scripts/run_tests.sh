#!/usr/bin/env bash
# Lint, types, shell scripts and tests.
#   bash scripts/run_tests.sh                           all tests but the slow ones
#   bash scripts/run_tests.sh --quick                   without the thorough ones too: run it on every change
#   bash scripts/run_tests.sh tests/samples -k masking  only these tests, no lint: any other arguments are pytest's
#   bash scripts/run_tests.sh tests/cluster -m slow     slow tests
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_python requirements-test.txt
cd "${REPOSITORY}"
PATH="$(dirname "${PYTHON}"):${PATH}"
export PATH

tests="not slow"
if [[ "${1:-}" == --quick ]]; then
  tests="not slow and not thorough"
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
# A file's tests stay in one process, because they share what its fixtures make.
exec "${PYTHON}" -m pytest -m "${tests}" --numprocesses logical --maxprocesses 4 --dist loadfile "$@"
