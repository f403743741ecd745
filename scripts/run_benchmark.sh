#!/usr/bin/env bash
# Run a module of tests/benchmarks by name; its arguments follow.
#
#     bash scripts/run_benchmark.sh half-precision [--updates 200]
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "${REPOSITORY}"
name="${1:-}"
module="${name//-/_}"
[[ -n "${name}" && -f "tests/benchmarks/${module}.py" ]] || fail "${name:-no name} must be a module of tests/benchmarks," \
  "such as half-precision, planner-check"
find_python "${TESTS}"
exec "${PYTHON}" -m "tests.benchmarks.${module}" "${@:2}"
