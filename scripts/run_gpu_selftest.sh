#!/usr/bin/env bash
# Examines a machine with GPUs: kernels, precisions, ranks, resumption, speed and memory of the recipes; writes one report
# to send back. Arguments go to tests/gpu/selftest: --list, --only NAME, --gpus N, --device cpu, --again, --help.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_python "$(runtime_extras)"
cd "${REPOSITORY}"
exec "${PYTHON}" -m tests.gpu.selftest "$@"
