#!/usr/bin/env bash
# Check whether this machine is fit to train, and say what to install or change.
#
#   bash scripts/doctor.sh
#   bash scripts/doctor.sh --json
#
# It needs no packages and installs nothing: any Python from 3.11 on will do.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
PYTHON="${BERT_PYTHON:-${BERT_VENV:-${REPOSITORY}/.venv}/bin/python}"
if ! command -v "${PYTHON}" >/dev/null; then
  print_usage "$@"
  PYTHON="$(supported_python 13)" \
    || fail "no Python from 3.11 to 3.13 on the PATH; run 'bash scripts/setup.sh' once, which installs one"
fi
export PYTHONPATH="${REPOSITORY}${PYTHONPATH:+:${PYTHONPATH}}" PYTHONSAFEPATH=1
exec "${PYTHON}" -m bert.doctor "$@"
