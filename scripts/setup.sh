#!/usr/bin/env bash
# Finds or makes the Python environment: `bash scripts/setup.sh [EXTRA ...]` does so and says which interpreter to use.
# EXTRA is one of pyproject.toml, such as serve; what training on this machine needs is always there.
# The others source it: `find_python EXTRA ...` sets PYTHON to an interpreter with the packages of uv.lock: the python on the
# PATH if it has them, otherwise that of BERT_VENV (default: .venv), which is made once. BERT_PYTHON names one to use as it
# is. BERT_PADDLE is 2.6 or 3.1, each with its environment (.venv, .venv-paddle3.1); default: 2.6, but 3.1 on GPUs that its
# wheel has no code for (Hopper and newer) and where the only Python is 3.13. UV_COMPILE_BYTECODE=1 compiles all packages,
# for an environment that others use and cannot write to.

REPOSITORY="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck disable=SC2034 # extras of the tests
TESTS="train paddle serve onnx openvino chinese segmentation office dask lddl tensorboard mlflow docs test check"
[[ " $* " == *" --help "* || " $* " == *" -h "* ]] && IS_HELP=true || IS_HELP=false # of the script that sources this one
export PYTHONUTF8=1 # paths and text are UTF-8, whatever the locale
# shellcheck source=scripts/packages.sh
source "${REPOSITORY}/scripts/packages.sh"

fail() {
  echo "error: $*" >&2
  exit 2
}

# `print_usage "$@"`: with --help, prints the comment that the script begins with, and ends it. Nothing is installed.
print_usage() {
  if [[ " $* " != *" --help "* && " $* " != *" -h "* ]]; then return; fi
  sed -n -e '/^\($\|[^#]\)/q' -e '2,$s/^# \?//p' "${REPOSITORY}/scripts/${0##*/}" | fold -s -w 100
  exit 0
}

supported_python() { # `supported_python NEWEST`: the first Python from 3.11 to 3.NEWEST on the PATH
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3 python; do
    if "${candidate}" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $1))" 2>/dev/null; then
      command -v "${candidate}"
      return
    fi
  done
  return 1
}

newest_card() { # the first number of its compute capability, such as 8; 0 without a GPU
  { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } \
    | awk -F. '/^[0-9]+\.[0-9]+$/ && $1 > newest { newest = $1 } END { print newest + 0 }'
}

runtime_extras() { # the extras of training on this machine
  local version="${BERT_PADDLE:-2.6}" gpu=""
  [[ "${version}" == 2.6 || "${version}" == 3.1 ]] || fail "BERT_PADDLE=${version} must be 2.6 or 3.1"
  if [[ -z "${BERT_PADDLE:-}" ]]; then
    if (($(newest_card) >= 9)) || { ! supported_python 12 && supported_python 13; } >/dev/null; then version=3.1; fi
  fi
  if command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus >/dev/null 2>&1; then gpu=gpu; fi
  if [[ "${version}" == 2.6 ]]; then echo "train ${gpu:-paddle}"; else echo "train paddle3${gpu:+-gpu}"; fi
}

known_extras() {
  sed -n '/^\[project.optional/,/^\[project.scripts/s/^\([a-z0-9-]*\) = .*/\1/p' "${REPOSITORY}/pyproject.toml" | paste -s -d ' '
}

requirements() { # `requirements PYTHON EXTRA ...`: whether it has the packages that pyproject.toml names
  "$1" "${REPOSITORY}/bert/doctor/requirements.py" "${@:2}"
}

find_python() { # `find_python EXTRA ...`, also as one word
  local candidate venv="${REPOSITORY}/.venv" stamp wanted
  read -ra extras <<<"$*"
  for candidate in "${extras[@]}"; do
    [[ " $(known_extras) " == *" ${candidate} "* ]] || fail "${candidate} must be one of $(known_extras); correct it"
  done
  if [[ -n "${BERT_PYTHON:-}" ]]; then
    PYTHON="${BERT_PYTHON}"
    command -v "${PYTHON}" >/dev/null || fail "BERT_PYTHON=${PYTHON} is no program; correct it, or unset it"
    requirements "${PYTHON}" "${extras[@]}" || echo "warning: using ${PYTHON} nevertheless (BERT_PYTHON)" >&2
    return
  fi
  for candidate in python3 python; do
    if [[ -z "${BERT_VENV:-}" ]] && requirements "${candidate}" "${extras[@]}" 2>/dev/null; then
      PYTHON="$(command -v "${candidate}")"
      return
    fi
  done
  if [[ "${extras[*]}" == *paddle3* ]]; then venv="${REPOSITORY}/.venv-paddle3.1"; fi
  venv="${BERT_VENV:-${venv}}"
  PYTHON="${venv}/bin/python" stamp="${venv}/installed-$(IFS=- && echo "${extras[*]}").sha256"
  wanted="$(sha256sum <"${REPOSITORY}/uv.lock")"
  if [[ -x "${PYTHON}" && -f "${stamp}" && "$(<"${stamp}")" == "${wanted}" ]]; then return; fi
  if [[ -x "${PYTHON}" && ! -w "${venv}" ]] && requirements "${PYTHON}" "${extras[@]}"; then return; fi # at each start
  if [[ "${IS_HELP}" == true ]]; then
    echo "The packages are not installed: run 'bash scripts/setup.sh' once; --help then lists all flags."
    print_usage --help
  fi
  make_environment "${venv}" "the packages of ${extras[*]}" install_packages "${PYTHON}" "${extras[@]}" || exit
  { echo "${wanted}" >"${stamp}"; } 2>/dev/null || true
}

find_runtime() { # `find_python` with what training needs; files of the current folder, such as a data.py, are not imported
  local needed
  needed="$(runtime_extras)"
  find_python "${needed}"
  export PYTHONPATH="${REPOSITORY}${PYTHONPATH:+:${PYTHONPATH}}" PYTHONSAFEPATH=1
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  set -euo pipefail
  print_usage "$@"
  needed="$(runtime_extras)"
  if [[ " $* " =~ \ (paddle|gpu|paddle3|paddle3-gpu)\  ]]; then needed=train; fi # a Paddle was named
  find_python "${needed} $*"
  if ! requirements "${PYTHON}" "${extras[@]}"; then # something was removed from it
    [[ -z "${BERT_PYTHON:-}" ]] || fail "install these packages into ${BERT_PYTHON}, or unset BERT_PYTHON"
    make_environment "${PYTHON%/bin/python}" "the packages of ${extras[*]}" install_packages "${PYTHON}" "${extras[@]}"
  fi
  echo "The packages of ${extras[*]} are in the environment of ${PYTHON/#"${PWD}/"/}, for example:"
  echo "  ${PYTHON/#"${PWD}/"/} ${REPOSITORY/#"${PWD}"/.}/run_pretraining.py --help"
fi
