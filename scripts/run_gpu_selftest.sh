#!/usr/bin/env bash
# Examines a machine with GPUs: kernels, precisions, ranks, resumption, speed and memory of the recipes; writes one report
# to send back. Arguments go to tests/gpu/selftest: --list, --only NAME, --gpus N, --device cpu, --again, --help.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
needed="$(runtime_extras)" # a failure in an argument would not end the script
find_python "${needed}"
cd "${REPOSITORY}"
exec "${PYTHON}" -m tests.gpu.selftest "$@"
