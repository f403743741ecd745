#!/usr/bin/env bash
# Build the image: bash scripts/docker/build.sh [ngc|cuda|hopper|blackwell|cpu|serve] [IMAGE [push|none]] [--dry-run]
#   [docker build options]. IMAGE is `bert`, or a name with a / or a tag; `push` sends it to its registry afterwards.
#   ngc   NVIDIA's PaddlePaddle image (default)      BERT_IMAGE   its name, too (default: bert-on-paddle:KIND)
#   cuda  plain CUDA 11.8 and PyPI's Paddle          BERT_BASE    another base image of the same kind, or NAME@sha256:DIGEST
#   cpu   no GPU                                     BERT_DOCKER  docker, podman, ... (default: docker)
#   serve no GPU, only the HTTP server: docs/howto/serve.md
#   hopper, blackwell   CUDA 12.6, 12.9 and Paddle 3.1 from Paddle's own index
# --dry-run prints the command and does not run it.
set -euo pipefail
if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then sed -n -e 's/^# //p' -e '/^set /q' "$0" | fold -s -w 100 && exit; fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

kind=ngc image="${BERT_IMAGE:-}" push=false dry_run=false options=()
for argument in "$@"; do
  case "${argument}" in
    ngc | cuda | hopper | blackwell | cpu | serve) kind="${argument}" ;;
    --dry-run) dry_run=true ;;
    push) push=true ;;
    none) ;;
    -*) options+=("${argument}") ;;
    bert | *[:/]*) image="${argument}" ;;
    *)
      echo "error: ${argument} must be ngc, cuda, hopper, blackwell, cpu, serve or" \
        "the name of an image (NAME:TAG); options of docker build start with -" >&2
      exit 2
      ;;
  esac
done

case "${kind}" in
  ngc) base=nvcr.io/nvidia/paddlepaddle:24.12-py3 paddle=base ;;
  cuda) base=nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04 paddle=gpu ;;
  hopper) base=nvidia/cuda:12.6.3-base-ubuntu24.04 paddle=cu126 ;;
  blackwell) base=nvidia/cuda:12.9.1-base-ubuntu24.04 paddle=cu129 ;;
  cpu) base=python:3.11-slim-bookworm paddle=cpu ;;
  serve) base=python:3.11-slim-bookworm paddle="" ;;
esac
arguments=("--build-arg=BASE=${BERT_BASE:-${base}}" "--build-arg=PADDLE=${paddle}")
if [[ "${kind}" == serve ]]; then arguments=(--target=serve "--build-arg=SERVE_BASE=${BERT_BASE:-${base}}"); fi
image="${image:-bert-on-paddle:${kind}}" docker="${BERT_DOCKER:-docker}"
command=("${docker}" build "${arguments[@]}" "--tag=${image}" "${options[@]}" .)

if "${dry_run}"; then
  printf '%q ' "${command[@]}"
  if "${push}"; then printf '&& ' && printf '%q ' "${docker}" push "${image}"; fi
  echo
  exit
fi
"${command[@]}"
if "${push}"; then "${docker}" push "${image}"; fi
