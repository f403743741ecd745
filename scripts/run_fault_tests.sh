#!/usr/bin/env bash
# Injects the faults of the fault matrix and counts what survives: `bash scripts/run_fault_tests.sh --rows 1,2,5`;
# `--full` tries as many as the project promises (hours), `--broken` takes each protection away and must see rows lose.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_python requirements-test.txt
cd "${REPOSITORY}"
exec "${PYTHON}" -m tests.faults "$@"
