#!/usr/bin/env bash
# Lint, types, shell scripts, tests. Arguments go to pytest: `bash scripts/run_tests.sh tests/config/test_command_line.py -k flag`;
# `-m slow` runs the long ones.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_python requirements-test.txt
cd "${REPOSITORY}"
PATH="$(dirname "${PYTHON}"):${PATH}"
export PATH

ruff check .
mypy
shellcheck --external-sources run.sub scripts/*.sh scripts/docker/*.sh scripts/configs/*.sh data/*.sh .ci/run
exec "${PYTHON}" -m pytest -m "not slow" "$@"
