#!/usr/bin/env bash
# Put single faults into modules, one after the other, and print those that the module's own tests
# do not notice. It works in a copy of the checkout.
#   bash scripts/run_mutation_tests.sh bert/labels/scores.py  20 faults; --faults N, --seed S: others
#   bash scripts/run_mutation_tests.sh --known                the faults that once were not noticed
#   bash scripts/run_mutation_tests.sh --list MODULE.py       the faults, without a run
#   other flags: --tests PATH [...], --line L, --file FAULTS.toml, --at-least PERCENT
set -euo pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then # nothing is installed for it
  sed -n -e '2,$s/^# \?//p' -e '/^set /q' "${BASH_SOURCE[0]}" | fold -s -w 100
  exit
fi
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
find_python "${TESTS}"
cd "${REPOSITORY}"
exec "${PYTHON}" -m tests.mutation "$@"
