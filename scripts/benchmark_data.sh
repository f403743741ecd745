#!/usr/bin/env bash
# Compares LDDL 0.1.0 with this project's data pipeline: CPU seconds, memory, padding. About 20 minutes on two cores.
#
#     bash scripts/benchmark_data.sh [--full]
#
# --full adds 1 GB to the growth (16, 64 and 256 MB otherwise). Settings are environment variables:
#   BERT_LDDL_VENV  LDDL's own environment, made if it is missing (.lddl-venv)
#   BERT_BENCHMARK_DIR     corpus, shards, logs (.benchmark); about 4 GB
#   BERT_BENCHMARK_OUTPUT  results are written to this name with .json and .md (.benchmark/results)
#   BERT_BENCHMARK_CORPUS  a corpus in LDDL's layout to use instead of the documentation on this machine
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh
print_usage "$@"

find_python train paddle
python=${PYTHON}
folder=${BERT_BENCHMARK_DIR:-.benchmark}
output=${BERT_BENCHMARK_OUTPUT:-$folder/results}
corpus=${BERT_BENCHMARK_CORPUS:-$folder/corpus}
sizes=(16 64 256)
if [[ "${1:-}" == "--full" ]]; then
  sizes+=(1024)
fi

mkdir -p "$folder"
find_lddl
if [[ ! -d "$corpus/source" ]]; then
  "$python" -m tests.benchmarks.documentation_corpus --output-dir "$corpus" --megabytes "${sizes[-1]}"
fi
if [[ ! -e "$folder/vocab.txt" ]]; then
  "$python" -m data.train_vocabulary --input "$corpus" --vocab-size 30000 --output "$folder/vocab.txt" --sample-megabytes 64
fi
"$python" -m tests.benchmarks.compare_data --corpus "$corpus" --vocab-file "$folder/vocab.txt" --lddl-python "$BERT_LDDL_VENV/bin/python" \
  --folder "$folder" --output "$output" --sizes "${sizes[@]}"
