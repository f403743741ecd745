#!/usr/bin/env bash
# Lint, types, shell scripts, the site of docs/ and tests.
#   bash scripts/run_tests.sh                           lint, types and the quick tests: run it on every change
#   bash scripts/run_tests.sh --long                    the long tests, and every command of the documents
#   bash scripts/run_tests.sh --nightly                 what the gate leaves out: installations, repeated faults
#   bash scripts/run_tests.sh --all                     all of these, faults at full counts, and the folders in ON_REQUEST
#   bash scripts/run_tests.sh tests/samples -k masking  only these tests, long ones too, no lint: arguments are pytest's
#   bash scripts/run_tests.sh --paddle 3.1              what depends on Paddle's version, on that version (or 2.6)
set -euo pipefail

# What Paddle's version may change: programs and kernels, ranks, checkpoints, the loop, and one training of each task.
OF_PADDLE=(
  tests/test_program.py tests/model tests/runtime/test_{cpu_kernels,distributed,hardware,paddle_api}.py
  tests/checkpoints/test_{golden_checkpoints,state}.py tests/training/test_{feeding,fused_kernels,memory,trainer}.py
  tests/finetuning/test_task.py::test_a_run_learns_scores_and_leaves_its_files
  tests/finetuning/squad/test_squad.py::test_it_learns_and_tells_the_official_scores_under_the_known_names
  tests/finetuning/ner/test_ner.py::test_predictions_are_in_the_files_form_and_score_what_was_said
  tests/glue/test_glue.py::test_a_task_is_learned_scored_and_predicted
)
# Long ones of these: a checkpoint of one Paddle is continued by the other, and two ranks are one.
LONG_OF_PADDLE=(
  tests/checkpoints/test_across_paddles.py
  "tests/runtime/test_distributed.py::test_two_ranks_with_and_without_accumulation_equal_one_rank_with_one_pass[float32_2_passes]"
)
# Minutes each, one after the other: Slurm and two hosts, newcomers, what models learn.
ON_REQUEST=(tests/{cluster,newcomer,figures})

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then # nothing is installed for it
  sed -n -e 's/^# //p' -e '/^set /q' "${BASH_SOURCE[0]}" | fold -s -w 100
  echo "ON_REQUEST: ${ON_REQUEST[*]}"
  exit
fi
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
packages="${TESTS}"
version="" suite=default
while (($# > 0)); do
  case "$1" in
    --paddle)
      version="${2:-}"
      [[ "${version}" == 2.6 || "${version}" == 3.1 ]] || fail "--paddle ${version} must be 2.6 or 3.1"
      if [[ "${version}" == 3.1 ]]; then packages="train paddle3 onnx segmentation test"; fi
      shift
      ;;
    --long) suite=long ;;
    --nightly) suite=nightly ;;
    --all) suite=all ;;
    --quick) fail "--quick is the default: bash scripts/run_tests.sh" ;;
    *) break ;;
  esac
  shift
done
find_python "${packages}"
cd "${REPOSITORY}"
PATH="$(dirname "${PYTHON}"):${PATH}"
export PATH

all_cores=(--numprocesses logical --maxprocesses 4 --durations 20)
quick_tests() { "${PYTHON}" -m pytest -m "not long and not nightly" "${all_cores[@]}" --dist worksteal "$@"; }
# The documents' commands run beside the long tests. loadgroup keeps those that share a model in one process, and begins
# with them, which take longest. A folder that is in norecursedirs and in another argument's folder is not collected.
long_tests() {
  "${PYTHON}" -m pytest -m "long and not nightly" "${all_cores[@]}" --dist loadgroup \
    -o "norecursedirs=.* tests/gpu/selftest ${ON_REQUEST[*]}"
}
nightly_tests() { "${PYTHON}" -m pytest -m nightly "${all_cores[@]}" --dist worksteal; }

if (($# > 0)); then
  if [[ "${suite}" == long ]]; then set -- -m long "$@"; fi
  exec "${PYTHON}" -m pytest "$@"
fi
code=0
case "${suite}" in
  long) long_tests || code=$? ;;
  nightly) nightly_tests || code=$? ;;
  *)
    if [[ -n "${version}" ]]; then
      quick_tests "${OF_PADDLE[@]}" || code=$?
      "${PYTHON}" -m pytest "${LONG_OF_PADDLE[@]}" || code=$?
      exit "${code}"
    fi
    ruff check .
    ruff format --check .
    shellcheck --external-sources run.sub scripts/*.sh scripts/docker/*.sh scripts/configs/*.sh data/*.sh .ci/run
    types="$(mktemp)" site="$(mktemp -d)"
    trap 'rm -rf "${types}" "${site}"' EXIT
    "${PYTHON}" -m mkdocs build --strict --quiet --site-dir "${site}" || code=1
    mypy >"${types}" 2>&1 & # beside the tests, which leave a core idle while they start and end
    checking=$!
    quick_tests || code=$?
    wait "${checking}" || code=1
    cat "${types}"
    ;;
esac
if [[ "${suite}" == all ]]; then
  export BERT_FULL_FAULTS=1
  long_tests || code=$?
  nightly_tests || code=$?
  "${PYTHON}" -m pytest --durations 20 "${ON_REQUEST[@]}" || code=$?
fi
exit "${code}"
