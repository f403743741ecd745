#!/usr/bin/env bash
# Injects the faults of the fault matrix and counts the survivors: `bash scripts/run_fault_tests.sh --rows 1,2,5`.
# `--full` runs as many trials as the project promises (hours); `--broken` disables each protection and expects failures.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_python "${TESTS}"
cd "${REPOSITORY}"
exec "${PYTHON}" -m tests.faults "$@"
