#!/usr/bin/env bash
# Run a command in the container.
#
#   bash scripts/docker/launch.sh bash scripts/run_pretraining.sh --config large --dry-run
#   bash scripts/docker/launch.sh --dry-run
#
# usage: bash scripts/docker/launch.sh [--dry-run] [COMMAND ...]
# COMMAND may be one quoted word, and after that, `bash` or `python`, as in NVIDIA's script, GPUs (all
# or 0,1) and a network (host, bridge or none). Without a command it starts a shell on a terminal,
# otherwise the doctor. It runs as the caller's user, who owns the results.
#   BERT_DATA         data, seen as /data and BERT_PREP_WORKING_DIR (default: $BERT_PREP_WORKING_DIR,
#                     else ./data if it has wikipedia/source/, pretrain/ or download/, else
#                     ./results/data)
#   BERT_RESULTS      results and checkpoints (default: ./results)
#   BERT_CHECKPOINTS  checkpoints to start from, read-only, seen as /checkpoints and
#                     /workspace/bert/checkpoints (default: ./checkpoints if it exists)
#   BERT_GPUS         GPUs: all (default where the driver lists some), none, or a list such as 0,1
#   BERT_IMAGE        image (default: bert-on-paddle:ngc with GPUs, bert-on-paddle:cpu without)
#   BERT_DOCKER       docker, podman, ... (default: docker)
# --dry-run prints the command and does not run it.
set -euo pipefail
if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then sed -n -e '2,$s/^# \?//p' -e '/^set /q' "$0" | fold -s -w 100 && exit; fi

dry_run=false
if [[ "${1:-}" == --dry-run ]]; then
  dry_run=true
  shift
fi

gpus="${BERT_GPUS:-}" network=""

# Whether the words are those of NVIDIA's script: COMMAND [GPUS [NETWORK]]. `sleep 5` and `make all` are commands.
is_of_nvidia() {
  [[ "${2:-all}" =~ ^(all|[0-9]+(,[0-9]+)*)$ ]] && (($# > 0 && $# <= 3)) || return
  [[ "$1" == *" "* || "$1" =~ ^(/[a-z/]*/)?(ba|z|)sh$ ]] && return
  [[ "${2:-}" == *,* || "${3:-}" =~ ^(host|bridge|none)$ ]] && return
  [[ "$1" =~ ^(/[a-z/]*/)?python[0-9.]*$ && -n "${2:-}" && ! -e "$2" ]]
}
if is_of_nvidia "$@"; then
  gpus="${2:-${gpus}}" network="${3:-}"
  read -ra words <<<"$1"
  set -- "${words[@]}"
fi
if [[ -z "${gpus}" ]]; then
  gpus=none
  if command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus >/dev/null 2>&1; then gpus=all; fi
fi
data=results/data
if [[ -d data/wikipedia/source || -d data/pretrain || -d data/download ]]; then data=data; fi # data/wikipedia is code
data="$(realpath --canonicalize-missing "${BERT_DATA:-${BERT_PREP_WORKING_DIR:-${data}}}")"
results="$(realpath --canonicalize-missing "${BERT_RESULTS:-results}")"
checkpoints="${BERT_CHECKPOINTS:-}"
if [[ -z "${checkpoints}" && -d checkpoints ]]; then checkpoints=checkpoints; fi
for folder in "${data}" "${results}" "${checkpoints}"; do
  if [[ "${folder}" == *[:,]* ]]; then
    echo "error: ${folder} must not have a : or , in its name, which docker's mounts cannot have; rename or link it" >&2
    exit 2
  fi
done

# An init process reaps orphans of ranks; docker stop waits for the checkpoint; NCCL and readers need these limits.
command=("${BERT_DOCKER:-docker}" run --rm --init --stop-timeout=120 --user="$(id -u):$(id -g)"
  --shm-size=8g --ulimit=memlock=-1 --ulimit=stack=67108864 --ulimit=nofile=65536:65536
  "--volume=${data}:/data" "--volume=${results}:/workspace/bert/results")
if [[ -n "${checkpoints}" ]]; then
  checkpoints="$(realpath "${checkpoints}")" || {
    echo "error: BERT_CHECKPOINTS=${BERT_CHECKPOINTS} must be a folder that exists" >&2
    exit 2
  }
  command+=("--volume=${checkpoints}:/checkpoints:ro" "--volume=${checkpoints}:/workspace/bert/checkpoints:ro")
fi
if [[ -n "${network}" ]]; then command+=("--network=${network}"); fi
image="${BERT_IMAGE:-bert-on-paddle:ngc}"
case "${gpus}" in
  none) image="${BERT_IMAGE:-bert-on-paddle:cpu}" ;;
  all) command+=(--gpus=all) ;;
  *) command+=("--gpus=\"device=${gpus}\"") ;; # docker wants the inner quotes around a list
esac
if [[ -t 0 && -t 1 ]]; then command+=(--interactive --tty); fi
command+=("${image}")
if (($# > 0)); then
  command+=("$@")
elif [[ -t 0 && -t 1 ]]; then
  command+=(bash)
fi

if "${dry_run}"; then
  printf '%q ' "${command[@]}"
  echo
  exit
fi
mkdir -p "${data}" "${results}" # docker would make them, as root
exec "${command[@]}"
