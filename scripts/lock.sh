#!/usr/bin/env bash
# Makes uv.lock from the extras of pyproject.toml: every package with its version and the hashes of
# its files. Versions of the old lock stay where they still fit; other arguments go to uv, such as
# --upgrade or --upgrade-package NAME.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh
print_usage "$@"
find_uv
# Of this machine's indexes nothing gets into the lock. BERT_PADDLE: setup.py adds no packages of its own.
exec env -u UV_INDEX -u UV_FIND_LINKS BERT_PADDLE=lock "${UV}" lock --default-index https://pypi.org/simple "$@"
