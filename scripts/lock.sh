#!/usr/bin/env bash
# Makes lock-paddle2.6.txt and lock-paddle3.1.txt from the extras of pyproject.toml: every package with its version, the
# hashes of its files, and what needs it ("via", which bert/doctor/requirements.py follows). Versions of the old locks
# stay where they still fit; other arguments go to uv, such as --upgrade or --upgrade-package NAME.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv="$(mktemp -d)"
trap 'rm -rf "${uv}"' EXIT
python3 -m venv "${uv}"
"${uv}/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9

# `lock VERSION "EXTRAS ..." OPTIONS ...`
lock() {
  local file="lock-paddle$1.txt" extras extra
  read -ra extras <<<"$2"
  shift 2
  for extra in "${extras[@]}"; do set -- --extra "${extra}" "$@"; done
  # BERT_PADDLE: setup.py adds no Paddle of its own, and the cache would remember the other one.
  BERT_PADDLE=none UV_CUSTOM_COMPILE_COMMAND="bash scripts/lock.sh" "${uv}/bin/uv" pip compile pyproject.toml \
    --output-file "${file}" --python-version 3.11 --generate-hashes --annotation-style line \
    --index-url https://pypi.org/simple --no-emit-index-url --no-cache --quiet "$@"
}

# PaddleNLP, which `check` has, cannot be resolved for Windows, so for all platforms at once neither.
lock 2.6 "paddle gpu train serve onnx openvino chinese office tensorboard wandb dask notebook test check" --python-platform x86_64-manylinux_2_28 "$@"
lock 3.1 "paddle3 train serve onnx openvino chinese office tensorboard wandb dask notebook test" --universal "$@"
