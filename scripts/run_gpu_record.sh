#!/usr/bin/env bash
# Build the programs of the GPU recipes with Paddle's GPU wheel (no GPU needed) and compare them with
# their records in tests/gpu/golden. Arguments go to tests/gpu/recipe_records.py: names of recipes,
# --write, --table, --help. The wheel is that of the python on the PATH if it has one, otherwise that
# of BERT_GPU_VENV (default: .venv-gpu), which is made once: 3.8 GB, two minutes.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
gpu_venv="${BERT_GPU_VENV:-${REPOSITORY}/.venv-gpu}"
needed_kb=$((6 * 1000 * 1000))

if [[ -n "${BERT_GPU_VENV:-}" ]] || ! requirements python3 train gpu 2>/dev/null; then
  export BERT_VENV="${gpu_venv}"
  if [[ ! -x "${gpu_venv}/bin/python" ]]; then
    free_kb="$(df --output=avail --block-size=1000 "$(dirname "${gpu_venv}")" | tail -n 1)"
    ((free_kb >= needed_kb)) || fail "$(dirname "${gpu_venv}") has $((free_kb / 1000)) MB free, and the GPU wheel needs" \
      "$((needed_kb / 1000)) MB to install; name another place with BERT_GPU_VENV=/path"
  fi
fi
find_python train gpu
cd "${REPOSITORY}"
exec "${PYTHON}" tests/gpu/recipe_records.py "$@"
