#!/usr/bin/env bash
# Make all data of pre-training and SQuAD, from downloads to shards.
#
#   bash data/create_datasets_from_start.sh --dry-run
#   bash data/create_datasets_from_start.sh --only vocabulary --only squad
set -euo pipefail

STEPS=(wikipedia vocabulary phase1 phase2 squad glue)

usage() {
  cat <<HELP
Make the data that the recipes for BERT-large read, from downloads to shards.

Examples:
  bash data/create_datasets_from_start.sh --dry-run
  bash data/create_datasets_from_start.sh --only vocabulary --only squad

usage: BERT_PREP_WORKING_DIR=DIR bash data/create_datasets_from_start.sh [options]

The data go below \$BERT_PREP_WORKING_DIR (default: results/data of the checkout, which
scripts/docker/launch.sh mounts):
  wikipedia   wikipedia/source/LANG/N.txt          the articles' text, from a verified dump
  vocabulary  vocab/NAME-vocab.txt                 otherwise vocab/LANG-vocab.txt, made of the
                                                   text, without --vocabulary and --vocab-file
  phase1      pretrain/phase1/unbinned/parquet     shards of sequences of 128
  phase2      pretrain/phase2/bin_size_64/parquet  shards of sequences of 512, in bins of 64
  squad       download/squad/v1.1                  English; for another language only with --only
  glue        download/glue                        only with --only glue
Text in books/source/LANG is read too, if you put it there:
  wget --input-file LIST --directory-prefix raw
  .venv/bin/python -m data.import_text --input raw --output-dir \$BERT_PREP_WORKING_DIR/books
Every step resumes its earlier work: after an interruption, start the same command again.

  --only STEP            run this step alone; may be repeated
  --skip STEP            leave this step out; may be repeated
  --language CODE        language of the Wikipedia (default: en)
  --dump-date YYYYMMDD   dump to download (default: the pinned one)
  --local-dump FILE      a dump that you have, instead of a download
  --vocabulary NAME      one to download (default: bert-large-uncased for English)
  --vocab-file FILE      a vocabulary of your own, instead of a download
  --num-shards N         per phase, and per bin in phase 2 (default: 4096, for 8 GPUs x 4 x 128)
  --sample-ratio R       share of the documents (default: 0.9)
  --duplicate-factor N   times each document is used, each time masked anew (default: 5, as LDDL's)
  --masking KIND         static or dynamic (default: static)
  --seed N               default: 12439
  --num-processes N      default: all cores
  --dry-run              print the commands, and estimates of disk and time; run none
  --help
HELP
}

stop() {
  echo "error: $*; see --help" >&2
  exit 2
}

is_step() {
  [[ " ${STEPS[*]} " == *" $1 "* ]] || stop "step '$1' is not one of: ${STEPS[*]}"
}

language=en dump_date='' local_dump='' vocabulary='' vocab_file=''
num_shards=4096 sample_ratio=0.9 duplicate_factor=5 masking=static seed=12439 num_workers="$(nproc)" dry_run=false
only=() skip=()

while (($#)); do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --dry-run) dry_run=true; shift; continue ;;
    --*) (($# > 1)) || stop "$1 needs a value" ;;
    *) stop "argument '$1' is not understood" ;;
  esac
  case "$1" in
    --only) is_step "$2"; only+=("$2") ;;
    --skip) is_step "$2"; skip+=("$2") ;;
    --language | --lang) language="$2" ;;
    --dump-date) dump_date="$2" ;;
    --local-dump) local_dump="$(realpath -- "$2")" ;;
    --vocabulary) vocabulary="$2" ;;
    --vocab-file) vocab_file="$(realpath -- "$2")" ;;
    --num-shards) num_shards="$2" ;;
    --sample-ratio) sample_ratio="$2" ;;
    --duplicate-factor) duplicate_factor="$2" ;;
    --masking) masking="$2" ;;
    --seed) seed="$2" ;;
    --num-processes | --local-n-workers) num_workers="$2" ;;
    *) stop "option '$1' is not known" ;;
  esac
  shift 2
done

whole() { # OPTION VALUE
  [[ "$2" =~ ^0*[1-9][0-9]*$ ]] || stop "$1 $2 must be a whole number of at least 1"
}
whole --num-shards "${num_shards}"
whole --duplicate-factor "${duplicate_factor}"
whole --num-processes "${num_workers}"
if ! [[ "${sample_ratio}" =~ ^(0*1?\.0*|0*1|0*\.[0-9]+)$ && "${sample_ratio}" =~ [1-9] ]]; then
  stop "--sample-ratio ${sample_ratio} must be above 0 and at most 1"
fi

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/setup.sh"
next=""
if [[ -z "${BERT_PREP_WORKING_DIR:-}" ]]; then
  BERT_PREP_WORKING_DIR="${REPOSITORY}/results/data"
  printf -v next "; so that the trainings find it: export BERT_PREP_WORKING_DIR=%q" "${BERT_PREP_WORKING_DIR}"
  echo "BERT_PREP_WORKING_DIR is not set: the data goes to ${BERT_PREP_WORKING_DIR}${next}" >&2
fi
${dry_run} || mkdir -p -- "${BERT_PREP_WORKING_DIR}"
work="$(realpath --canonicalize-missing -- "${BERT_PREP_WORKING_DIR}")"
wikipedia="${work}/wikipedia" books="${work}/books"
# The code of the language of a Wikipedia, whose sentences are English in simple, Chinese in zh_classical.
sentences="${language%%[-_]*}"
[[ "${language}" != simple ]] || sentences=en
trains_vocabulary=false
if [[ -z "${vocabulary}${vocab_file}" && "${sentences}" != en ]]; then
  trains_vocabulary=true vocab_file="${work}/vocab/${language}-vocab.txt"
fi
vocabulary="${vocabulary:-bert-large-uncased}"
[[ -n "${vocab_file}" ]] || vocab_file="${work}/vocab/${vocabulary}-vocab.txt"

${dry_run} || find_python train
cd "${REPOSITORY}"

wanted() {
  if ((${#only[@]})); then
    [[ " ${only[*]} " == *" $1 "* ]]
  elif [[ "$1" == glue || ("$1" == squad && "${sentences}" != en) ]]; then
    false
  else
    [[ " ${skip[*]:-} " != *" $1 "* ]]
  fi
}

run() {
  echo "+ python -m $*" >&2
  ${dry_run} || "${PYTHON}" -m "$@"
}

preprocess() { # SINK LENGTH MAX_PREDICTIONS [MORE FLAGS]
  local sink="$1" length="$2" predictions="$3"
  local flags=(--output-dir "${sink}" --vocab-file "${vocab_file}" --max-seq-length "${length}" --language "${sentences}"
    --num-shards "${num_shards}" --sample-ratio "${sample_ratio}" --duplicate-factor "${duplicate_factor}"
    --seed "${seed}" --num-processes "${num_workers}" --masking "${masking}" --wikipedia "${wikipedia}/source")
  [[ "${masking}" != static ]] || flags+=(--max-predictions-per-seq "${predictions}")
  [[ ! -d "${books}/source" ]] || flags+=(--books "${books}/source")
  run data.preprocess_bert_pretrain "${flags[@]}" "${@:4}"
}

if wanted wikipedia; then
  flags=(--output-dir "${wikipedia}" --language "${language}" --num-processes "${num_workers}")
  [[ -z "${dump_date}" ]] || flags+=(--dump-date "${dump_date}")
  [[ -z "${local_dump}" ]] || flags+=(--local-dump "${local_dump}")
  run data.download_wikipedia "${flags[@]}"
fi
if wanted vocabulary && [[ ! -f "${vocab_file}" ]]; then
  if ${trains_vocabulary}; then
    flags=(--input "${wikipedia}/source" --output "${vocab_file}" --sample-megabytes 1000)
    [[ ! -d "${books}/source" ]] || flags+=(--input "${books}/source")
    run data.train_vocabulary "${flags[@]}"
  else
    run data.download_vocabulary --output-dir "${work}/vocab" --name "${vocabulary}"
  fi
fi
if wanted phase1; then
  preprocess "${work}/pretrain/phase1/unbinned/parquet" 128 20
fi
if wanted phase2; then
  preprocess "${work}/pretrain/phase2/bin_size_64/parquet" 512 80 --bin-size 64
fi
if wanted squad; then
  run data.download_squad --output-dir "${work}/download/squad"
fi
if wanted glue; then
  run data.download_glue --output-dir "${work}/download/glue"
fi
if ${dry_run}; then
  steps=()
  for step in "${STEPS[@]}"; do if wanted "${step}"; then steps+=("${step}"); fi; done
  flags=(--folder "${work}" --dump "${local_dump}" --sample-ratio "${sample_ratio}" --processes "${num_workers}"
    --duplicate-factor "${duplicate_factor}")
  if [[ "${language}" == en && -z "${dump_date}${local_dump}" ]]; then flags+=(--pinned); fi
  "$(supported_python 13)" -P data/preprocessing/estimates.py "${flags[@]}" "${steps[@]}"
  echo "dry run, nothing was made: ${work}${next}"
  exit 0
fi
echo "done: ${work}${next}"
