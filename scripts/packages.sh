# shellcheck shell=bash
# Part of setup.sh: environments, made and filled by uv.

# The uv that is installed where the PATH has none.
UV_PIN="uv==0.13.9 --hash=sha256:d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"
UV_HOME="${BERT_VENV:-${REPOSITORY}/.venv}-uv"
UV_OPTIONS=()

# uv takes an empty variable for a value: an empty UV_CACHE_DIR is refused as a folder without a name.
for variable in $(compgen -e UV_); do
  if [[ -z "${!variable}" ]]; then unset "${variable}"; fi
done
unset variable

# `make_environment VENV NAME COMMAND ...`: makes VENV where it is missing, and runs COMMAND, which installs NAME into it.
# Another start waits. What was cut off, by Ctrl-C or a full disk, is installed anew by the next start.
make_environment() (
  set -euo pipefail
  venv="$1" newest=12 versions="3.11 or 3.12"
  if [[ "$2" == *paddle3* ]]; then newest=13 versions="3.11, 3.12 or 3.13"; fi
  echo "Installing $2 into ${venv} (once)" >&2
  mkdir -p "${venv}"
  exec {lock}>"${venv}/setup.lock"
  if command -v flock >/dev/null; then flock "${lock}"; fi
  find_uv
  if [[ -e "${venv}/incomplete" ]]; then UV_OPTIONS+=(--reinstall); fi
  touch "${venv}/incomplete"
  if ! "${venv}/bin/python" -c "" >/dev/null 2>&1; then
    python="$(supported_python "${newest}")" || {
      python=3.12
      echo "No Python ${versions} on the PATH: uv takes one of its own, fetched once (30 MB) from" \
        "${UV_PYTHON_INSTALL_MIRROR:-github.com/astral-sh/python-build-standalone}" >&2
    }
    "${UV}" venv --quiet --allow-existing --python "${python}" "${venv}" \
      || fail "uv cannot make ${venv} (see above); install Python ${versions} and put it on the PATH"
  fi
  "${@:3}" || fail "could not install $2 (see above); check the network, then start again"
  rm "${venv}/incomplete"
)

# `install_packages PYTHON EXTRA ...`: what uv.lock has, checked by its hashes.
install_packages() {
  local python="$1" extra options=() cuda="${BERT_CUDA:-cu126}"
  shift
  for extra in "$@"; do options+=(--extra "${extra}"); done
  "${UV}" export --project "${REPOSITORY}" --python "${python}" --frozen --quiet --no-emit-project --no-header --no-annotate \
    "${options[@]}" | uv_install "${python}" --no-deps --require-hashes --requirement - || return
  if [[ " $* " == *" paddle3-gpu "* ]]; then # in no lock: Paddle's own index has it, a wheel for each version of CUDA
    if [[ -z "${BERT_CUDA:-}" ]] && (($(newest_card) >= 10)); then cuda=cu129; fi
    # Of that index this one package is taken; what it needs, in the next line, comes from where all others do.
    uv_install "${python}" --no-deps paddlepaddle-gpu==3.1.1 \
      --default-index "https://www.paddlepaddle.org.cn/packages/stable/${cuda}/" || return
    UV_OPTIONS=()
    uv_install "${python}" paddlepaddle-gpu==3.1.1
  fi
}

# `uv_install PYTHON ARGUMENTS ...`. Compiling all modules took two thirds of the set-up. Python compiles those that a
# start imports, once (5 CPU seconds for a training). It may not keep them where PYTHONDONTWRITEBYTECODE is set, and cannot
# in a container or in a folder of another user: UV_COMPILE_BYTECODE=1 compiles all.
uv_install() {
  if [[ -n "${PYTHONDONTWRITEBYTECODE:-}" ]]; then export UV_COMPILE_BYTECODE="${UV_COMPILE_BYTECODE:-1}"; fi
  "${UV}" pip install --python "$1" "${UV_OPTIONS[@]}" "${@:2}" \
    |& sed -u '/^ [-+~] /d' >&2 # a line for each package
}

# `find_uv`: sets UV to the uv on the PATH, or to one in an environment of its own. It is given the settings of pip.
# -I: the folder that the user stands in may have a venv.py or a pip.py, which is not run. Python 3.10 and older, which
# may make this environment, do not know PYTHONSAFEPATH.
find_uv() {
  local python
  if ! UV="$(command -v uv)" || ! printf '%s\n' "uv 0.8" "$("${UV}" --version)" | sort --check=quiet --version-sort; then
    UV="${UV_HOME}/bin/uv"
    exec {uv_lock}>"${UV_HOME}.lock"
    if command -v flock >/dev/null; then flock "${uv_lock}"; fi
    if [[ ! -f "${UV_HOME}/complete" || "$(<"${UV_HOME}/complete")" != "${UV_PIN}" ]]; then
      python="$(supported_python 99 || command -v python3 || command -v python)" \
        || fail "no Python found; install Python 3.11 or 3.12, or uv (https://docs.astral.sh/uv), and put it on the PATH"
      { "${python}" -I -m venv --clear "${UV_HOME}" \
        && "${UV_HOME}/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r <(echo "${UV_PIN}"); } >&2 \
        || fail "could not install uv with ${python} (see above); check the network, or install uv and put it on the PATH"
      echo "${UV_PIN}" >"${UV_HOME}/complete"
    fi
    exec {uv_lock}>&-
  fi
  pass_on_pip_settings
}

# Exports what pip's files and variables set (index, wheels, certificates, proxy) for uv, whose own variables come first.
pass_on_pip_settings() {
  local python list="" name value
  for python in python3 python "${UV_HOME}/bin/python"; do
    if list="$("${python}" -I -m pip config list 2>/dev/null)"; then break; fi
  done
  export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}" # versions are fixed: any index that has them will do
  if compgen -G "/etc/ssl/certs/*" >/dev/null; then export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"; fi
  while IFS='=' read -r name value; do # variables (:env:), then [install], then [global]: the first is taken
    value="${value:1:-1}" value="${value//\\n/ }"
    case "${name##*.}" in
      index-url) export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-${value}}" ;;
      extra-index-url) export UV_INDEX="${UV_INDEX:-${value}}" ;;
      find-links) export UV_FIND_LINKS="${UV_FIND_LINKS:-${value// /,}}" ;;
      trusted-host) export UV_INSECURE_HOST="${UV_INSECURE_HOST:-${value}}" ;;
      cert) export SSL_CERT_FILE="${SSL_CERT_FILE:-${value}}" ;;
      proxy) export ALL_PROXY="${ALL_PROXY:-${value}}" ;;
      no-index) if [[ "${value}" != [0fFnN]* ]]; then UV_OPTIONS+=(--no-index); fi ;;
    esac
  done < <(sed -n -e 's/^global/~global/' -e '/=../p' <<<"${list}" | LC_ALL=C sort)
}

# `find_torch [NAME]` sets TORCH_PYTHON to an interpreter with PyTorch, transformers and the packages of a comparison
# (tests/benchmarks/requirements-NAME.txt, default: torch): BERT_TORCH_VENV (default: .venv-torch), made if it is
# missing; BERT_TORCH_WHEELS is a folder with wheels, searched before the package index.
find_torch() {
  local name="${1:-torch}" venv="${BERT_TORCH_VENV:-${REPOSITORY}/.venv-torch}"
  export TORCH_PYTHON="${venv}/bin/python"
  if [[ "${IS_HELP}" == true || -e "${venv}/.complete-${name}" ]]; then return; fi
  make_environment "${venv}" "PyTorch and what a comparison with it needs" uv_install "${TORCH_PYTHON}" \
    ${BERT_TORCH_WHEELS:+--find-links "${BERT_TORCH_WHEELS}"} -r "${REPOSITORY}/tests/benchmarks/requirements-${name}.txt"
  touch "${venv}/.complete-${name}"
}

# `find_lddl` sets BERT_LDDL_VENV (default: .lddl-venv) to an environment with NVIDIA's LDDL and its preprocessor.
find_lddl() {
  export BERT_LDDL_VENV="${BERT_LDDL_VENV:-${REPOSITORY}/.lddl-venv}"
  local python="${BERT_LDDL_VENV}/bin/python"
  [[ ! -e "${BERT_LDDL_VENV}/.complete" ]] || return 0
  make_environment "${BERT_LDDL_VENV}" LDDL uv_install "${python}" -r "${REPOSITORY}/tests/interop/requirements-lddl.txt"
  make_environment "${BERT_LDDL_VENV}" "LDDL itself" uv_install "${python}" --no-deps lddl==0.1.0
  touch "${BERT_LDDL_VENV}/.complete"
}
