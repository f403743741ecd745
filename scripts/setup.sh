#!/usr/bin/env bash
# Finds or makes the Python environment: `bash scripts/setup.sh [EXTRA ...]` does so and says which interpreter to use.
# EXTRA is one of pyproject.toml, such as serve; what training on this machine needs is always there.
# The other scripts source it: `find_python EXTRA ...` sets PYTHON to an interpreter with the locked packages of the extras.
# This is the python on the PATH if it has them; otherwise an environment is made once, in BERT_VENV (default: .venv).
# BERT_PYTHON names an interpreter to use as it is, for example in a container with its own Paddle.
# BERT_PADDLE is 2.6 or 3.1, each with an environment of its own (.venv, .venv-paddle3.1). Without it 2.6 is taken, except
# on GPUs that its wheel has no code for (Hopper and newer) and where the only Python is 3.13.

REPOSITORY="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# shellcheck disable=SC2034 # for the scripts that source this one
TESTS="train paddle serve onnx chinese office dask test check" # extras of the tests

export PYTHONUTF8=1 # paths and text are UTF-8, whatever the locale

fail() {
  echo "error: $*" >&2
  exit 2
}

# `supported_python NEWEST`: the first Python from 3.11 to 3.NEWEST on the PATH.
supported_python() {
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3 python; do
    if "${candidate}" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $1))" 2>/dev/null; then
      command -v "${candidate}"
      return
    fi
  done
  return 1
}

# Generation of the newest card: the first number of its compute capability, such as 8; 0 without a GPU.
newest_card() {
  { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } \
    | awk -F. '/^[0-9]+\.[0-9]+$/ && $1 > newest { newest = $1 } END { print newest + 0 }'
}

paddle_version() {
  if [[ -n "${BERT_PADDLE:-}" ]]; then
    [[ "${BERT_PADDLE}" == 2.6 || "${BERT_PADDLE}" == 3.1 ]] || fail "BERT_PADDLE=${BERT_PADDLE} must be 2.6 or 3.1"
    echo "${BERT_PADDLE}"
  elif (($(newest_card) >= 9)) || { ! supported_python 12 && supported_python 13; } >/dev/null; then
    echo 3.1
  else
    echo 2.6
  fi
}

# The extras of training on this machine.
runtime_extras() {
  local version gpu=""
  version="$(paddle_version)" || return
  if command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus >/dev/null 2>&1; then gpu=gpu; fi
  if [[ "${version}" == 2.6 ]]; then echo "train ${gpu:-paddle}"; else echo "train paddle3${gpu:+-gpu}"; fi
}

# The environment that is made for extras, if BERT_VENV does not name one.
default_environment() {
  if [[ "$*" == *paddle3* ]]; then echo "${REPOSITORY}/.venv-paddle3.1"; else echo "${REPOSITORY}/.venv"; fi
}

# `requirements PYTHON EXTRA ...`: whether it has their packages; with --locked, and all that those
# need; with --print, what pip needs to install them.
requirements() {
  "$1" "${REPOSITORY}/bert/doctor/requirements.py" "${@:2}"
}

# `find_python EXTRA ...`, also as one word
find_python() {
  local candidate venv stamp wanted words
  read -ra words <<<"$*"
  set -- "${words[@]}"
  venv="${BERT_VENV:-$(default_environment "$@")}"
  if [[ -n "${BERT_PYTHON:-}" ]]; then
    PYTHON="${BERT_PYTHON}"
    requirements "${PYTHON}" "$@" || echo "warning: using ${PYTHON} nevertheless (BERT_PYTHON)" >&2
    return
  fi
  if [[ -z "${BERT_VENV:-}" ]]; then
    for candidate in python3 python; do
      if requirements "${candidate}" "$@" 2>/dev/null; then
        PYTHON="$(command -v "${candidate}")"
        return
      fi
    done
  fi
  stamp="${venv}/installed-$(IFS=- && echo "$*").sha256"
  wanted="$(cat "${REPOSITORY}"/lock-*.txt | sha256sum)"
  PYTHON="${venv}/bin/python"
  if [[ -x "${PYTHON}" && -f "${stamp}" && "$(<"${stamp}")" == "${wanted}" ]]; then
    return
  fi
  if [[ ! -x "${PYTHON}" ]] || ! requirements "${PYTHON}" --locked "$@" 2>/dev/null; then make_environment "${venv}" "$@"; fi
  { echo "${wanted}" >"${stamp}"; } 2>/dev/null || true # a read-only environment is checked at each start
}

# `make_environment VENV EXTRA ...`
make_environment() {
  local venv="$1" base newest=12 versions="3.11 or 3.12"
  shift
  if [[ "$*" == *paddle3* ]]; then newest=13 versions="3.11, 3.12 or 3.13"; fi
  base="$(supported_python "${newest}")" || fail "no Python ${versions} found; install one and put it on the PATH"
  echo "Installing the packages of $* into ${venv} (once, some minutes)" >&2
  mkdir -p "${venv}"
  exec {lock}>"${venv}/setup.lock"
  if command -v flock >/dev/null; then flock "${lock}"; fi # a second start waits until the first is finished
  [[ -x "${venv}/bin/python" ]] || "${base}" -m venv "${venv}" \
    || fail "${base} cannot make an environment; install its venv package (Debian: python3-venv)"
  install_packages "${venv}/bin/python" "$@" || fail "pip could not install $* (see above); check the network, then start again"
  exec {lock}>&-
}

# `number_wheels TOTAL`: `3/61` before each line of a wheel.
number_wheels() {
  local line number=0
  while IFS= read -r line; do
    if [[ "${line}" != " "* ]]; then line="  $((++number))/$1 ${line}"; fi
    echo "${line}"
  done
}

# `install_packages PYTHON EXTRA ...`: what the lock has, checked by its hashes. One numbered line for each wheel, then the
# installation, which takes longest; pip's errors go to standard error as they are.
install_packages() (
  set -uo pipefail # each failure is returned: `set -e` does not hold in a condition
  python="$1"
  shift
  list="$(mktemp)"
  trap 'rm -f "${list}"' EXIT
  requirements "${python}" --print "$@" >"${list}" || return
  pip=("${python}" -m pip install --disable-pip-version-check --progress-bar off)
  # Old pips build what has no wheel (seqeval, jieba) without the packages that its build needs, unless told.
  "${pip[@]}" --use-pep517 --require-hashes --requirement "${list}" \
    | sed -un -e '/\.metadata/d' -e 's/^ *\(Downloading\|Using cached\) \([^ ]*\/\)\?/\1 /p' \
      -e 's/^Installing collected.*/  Installing the packages (about a minute)/p' \
    | number_wheels "$(grep -c '==' "${list}")" >&2 || return
  if [[ " $* " == *" paddle3-gpu "* ]]; then # in no lock: Paddle's own index has it, a wheel for each version of CUDA
    cuda="${BERT_CUDA:-cu126}"
    if [[ -z "${BERT_CUDA:-}" ]] && (($(newest_card) >= 10)); then cuda=cu129; fi
    # Of that index this one package is taken; what it needs, in the next line, comes from where all others do.
    "${pip[@]}" --no-deps --index-url "https://www.paddlepaddle.org.cn/packages/stable/${cuda}/" paddlepaddle-gpu==3.1.1 >&2 \
      && "${pip[@]}" paddlepaddle-gpu==3.1.1 >&2
  fi
)

# `launch TASK ARGUMENTS ...`: the launcher of run_TASK.sh. Files of the current folder are not imported: it may hold a
# data.py or a bert of its own.
launch() {
  local extras
  extras="$(runtime_extras)"
  find_python "${extras}"
  export PYTHONPATH="${REPOSITORY}${PYTHONPATH:+:${PYTHONPATH}}" PYTHONSAFEPATH=1
  exec "${PYTHON}" -m bert.commands "$@"
}

# `find_torch [NAME]` sets TORCH_PYTHON to an interpreter with PyTorch, transformers and the packages of a comparison
# (tests/benchmarks/requirements-NAME.txt, default: torch): BERT_TORCH_VENV (default: .venv-torch), made if it is
# missing; BERT_TORCH_WHEELS is a folder with wheels, searched before the package index.
find_torch() {
  local name="${1:-torch}" venv="${BERT_TORCH_VENV:-${REPOSITORY}/.venv-torch}"
  export TORCH_PYTHON="${venv}/bin/python"
  [[ ! -e "${venv}/.complete-${name}" ]] || return 0
  echo "Installing PyTorch and what a comparison with it needs into ${venv} (once, some minutes)" >&2
  "${PYTHON}" -m venv "${venv}"
  "${venv}/bin/pip" install --quiet ${BERT_TORCH_WHEELS:+--find-links "${BERT_TORCH_WHEELS}"} \
    -r "${REPOSITORY}/tests/benchmarks/requirements-${name}.txt"
  touch "${venv}/.complete-${name}"
}

set_up() {
  local base extras
  base="$(runtime_extras)"
  if [[ " $* " =~ \ (paddle|gpu|paddle3|paddle3-gpu)\  ]]; then base=train; fi # a Paddle was named
  read -ra extras <<<"${base} $*"
  requirements "${BERT_PYTHON:-$(supported_python 13 || echo python3)}" --print "${extras[@]}" >/dev/null || exit 2
  find_python "${extras[@]}"
  if ! requirements "${PYTHON}" "${extras[@]}"; then
    [[ -z "${BERT_PYTHON:-}" ]] || fail "install these packages into ${BERT_PYTHON}, or unset BERT_PYTHON"
    # something was removed from it
    make_environment "${BERT_VENV:-$(default_environment "${extras[@]}")}" "${extras[@]}"
  fi
  echo "The packages of ${extras[*]} are in the environment of ${PYTHON/#"${PWD}/"/}, for example:"
  echo "  ${PYTHON/#"${PWD}/"/} ${REPOSITORY/#"${PWD}"/.}/run_pretraining.py --help"
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  set -euo pipefail
  set_up "$@"
fi
