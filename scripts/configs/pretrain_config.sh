#!/usr/bin/env bash
# Presets as positional arguments of run_pretraining.sh (- means the default):
#   bash scripts/run_pretraining.sh $(source scripts/configs/pretrain_config.sh && dgxa100-80g_8gpu_amp)
# More nodes: bash scripts/run_pretraining.sh --config dgxa100-80g_4x8gpu_amp --master HOST:PORT

print_pretraining() {
  local precision="$1" batch1="$2" accumulation1="$3" batch2="$4" accumulation2="$5"
  local gpus=8 save_steps=200 create_logfile=false seed=12439 job_name=bert_lamb_pretraining
  local lr1=6e-3 warmup1=0.2843 steps1=7038 lr2=4e-3 warmup2=0.128 steps2=1563
  # The launcher fills in the variable; expanded here, a space in it would break the line into words.
  # shellcheck disable=SC2016
  local data1='$BERT_PREP_WORKING_DIR/pretrain/phase1/unbinned/parquet/' \
    data2='$BERT_PREP_WORKING_DIR/pretrain/phase2/bin_size_64/parquet/' \
    wikipedia_source='$BERT_PREP_WORKING_DIR/wikipedia/source/'
  local code_dir=- init_checkpoint=None dask_workers=- shards_per_worker=128 num_workers=4 sample_ratio=0.9
  local bin_size2=64 masking=static bert_config=None benchmark=false benchmark_steps=10 benchmark_warmup_steps=10
  local fuse_mha=true
  echo "${batch1}" "${lr1}" "${precision}" "${gpus}" "${warmup1}" "${steps1}" "${save_steps}" "${create_logfile}" \
    "${accumulation1}" "${seed}" "${job_name}" "${batch2}" "${lr2}" "${warmup2}" "${steps2}" "${accumulation2}" \
    "${data1}" "${data2}" "${code_dir}" "${init_checkpoint}" "${wikipedia_source}" "${dask_workers}" \
    "${shards_per_worker}" "${num_workers}" "${sample_ratio}" "${bin_size2}" "${masking}" "${bert_config}" \
    "${benchmark}" "${benchmark_steps}" "${benchmark_warmup_steps}" "${fuse_mha}"
}

dgxa100-80g_8gpu_amp() { print_pretraining amp 256 32 64 64; }

dgxa100-80g_8gpu_tf32() { print_pretraining tf32 128 64 32 128; }
