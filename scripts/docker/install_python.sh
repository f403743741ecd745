#!/usr/bin/env bash
# Part of the Dockerfile: `install_python.sh base|gpu|cu126|cu129|cpu VENV` makes VENV with a Python
# that the pinned packages support, installing one if the base image has none. With `base` the
# environment also contains the image's own Paddle.
set -euo pipefail

paddle="$1" venv="$2"
export DEBIAN_FRONTEND=noninteractive

case "${paddle}" in
  base | gpu | cu126 | cu129 | cpu) ;;
  *)
    echo "error: PADDLE=${paddle} must be base, gpu, cu126, cu129 or cpu" >&2
    exit 2
    ;;
esac

supported_python() {
  local candidate
  for candidate in python3 python3.11 python3.12; do
    if command -v "${candidate}" >/dev/null \
      && "${candidate}" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))'; then
      echo "${candidate}"
      return
    fi
  done
  return 1
}

apt-get update
packages=(ca-certificates)
python="$(supported_python)" || python=""
if [[ -z "${python}" ]]; then
  if [[ "${paddle}" == base ]]; then
    echo "error: this image's $(python3 --version) must be 3.11 or 3.12; build 'cuda' (Paddle 2.6 on CUDA 11.8) or 'hopper'" \
      "(Paddle 3.1, which brings CUDA 12.6), or name a newer image with BERT_BASE" >&2
    exit 2
  fi
  for python in python3.11 python3.12 ""; do # Ubuntu 24.04 has 3.12, Debian 12 has 3.11
    if [[ -n "${python}" && -n "$(apt-cache show "${python}" 2>/dev/null)" ]]; then break; fi
  done
  if [[ -z "${python}" ]]; then
    echo "error: this image offers neither python3.11 nor python3.12; name another one with BERT_BASE" >&2
    exit 2
  fi
  packages+=("${python}" "${python}-venv")
elif ! "${python}" -c 'import ensurepip' 2>/dev/null; then
  packages+=("$("${python}" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')")
fi
if [[ "${paddle}" == c* ]]; then packages+=(libgomp1); fi # Paddle's wheel needs it

apt-get install --yes --no-install-recommends "${packages[@]}"
rm -rf /var/lib/apt/lists/*

options=()
if [[ "${paddle}" == base ]]; then
  options+=(--system-site-packages)
  version="$("${python}" -c 'from importlib.metadata import distributions as all
print(*{found.version for found in all() if found.name.lower() in ("paddlepaddle", "paddlepaddle-gpu")})')"
  if [[ "${version}" != 2.6* && "${version}" != 3.[01]* ]]; then
    echo "error: this image's Paddle ${version:-(none)} must be 2.6, 3.0 or 3.1; build 'cuda' (Paddle 2.6 on CUDA 11.8) or" \
      "'hopper' (Paddle 3.1, which brings CUDA 12.6), or name another image with BERT_BASE" >&2
    exit 2
  fi
fi
"${python}" -m venv "${options[@]}" "${venv}"
