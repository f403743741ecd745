#!/usr/bin/env bash
# Name the command that replaces a script of NVIDIA's TensorFlow BERT. Links have its name.
#
#   bash scripts/run_pretraining_lamb.sh  names the pre-training of phase 1 and phase 2 with LAMB
#   bash scripts/data_download.sh         names the commands that make the data
set -euo pipefail

case "${0##*/}" in
  run_pretraining_lamb.sh) here="bash scripts/run_pretraining.sh --config large_tensorflow" ;;
  run_pretraining_adam.sh) here="bash scripts/run_pretraining.sh --config base_adamw" ;;
  run_squad_inference.sh) here=".venv/bin/python run_predict.py MODEL QUESTIONS" ;;
  data_download.sh) here="bash data/create_datasets_from_start.sh" ;;
  *) here="" ;;
esac
if [[ " $* " == *" --help "* || " $* " == *" -h "* || -z "${here}" ]]; then
  sed -n -e '/^\($\|[^#]\)/q' -e '2,$s/^# \?//p' "${BASH_SOURCE[0]}"
  exit 0
fi
echo "error: ${0##*/} is a script of NVIDIA's TensorFlow BERT; run '${here}' (docs/from_nvidia.md)" >&2
exit 2
