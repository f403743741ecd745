#!/usr/bin/env bash
# Presets as positional arguments of run_squad.sh (- means the default):
#   bash scripts/run_squad.sh $(source scripts/configs/squad_config.sh && dgxa100-80g_8gpu_amp)

print_squad() {
  local precision="$1"
  local init_checkpoint=results/bert-large-uncased/phase2/1563 epochs=2 batch=32 lr=4.6e-5 warmup=0.2 gpus=8 seed=1
  # shellcheck disable=SC2016
  local squad_dir='$BERT_PREP_WORKING_DIR/download/squad/v1.1' vocab_file=- output_dir=results/squad
  local mode=train_eval bert_config=None max_steps=-1 benchmark=false benchmark_steps=100 benchmark_warmup_steps=100
  local fuse_mha=true
  echo "${init_checkpoint}" "${epochs}" "${batch}" "${lr}" "${warmup}" "${precision}" "${gpus}" "${seed}" \
    "${squad_dir}" "${vocab_file}" "${output_dir}" "${mode}" "${bert_config}" "${max_steps}" "${benchmark}" \
    "${benchmark_steps}" "${benchmark_warmup_steps}" "${fuse_mha}"
}

dgxa100-80g_8gpu_amp() { print_squad amp; }

dgxa100-80g_8gpu_tf32() { print_squad tf32; }
