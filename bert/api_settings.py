"""Settings of the functions of `bert.api`, as editors show them: the flags of the commands, with underscores.

Written by `pytest tests/test_api_settings.py --write-golden`, which holds it equal to the flags.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict


class LoadSettings(TypedDict, total=False):
    batch_size: int
    cpu_threads: int
    device: str
    do_lower_case: bool | None
    layers: Sequence[Any]
    max_seq_length: int | None
    pooling: str | None
    strip_accents: bool | None
    top_k: int
    vocab_file: Path | str | None


class PretrainSettings(TypedDict, total=False):
    add_words: int | None
    always_adapt: bool | None
    amp: bool | None
    amp_dtype: str | None
    async_checkpoint: bool | None
    attention_probs_dropout_prob: float | None
    batch_size: int | None
    batch_size_warmup_min_size: int | None
    batch_size_warmup_sequences: int | None
    benchmark: bool | None
    benchmark_steps: int | None
    benchmark_warmup_steps: int | None
    bert_model: str | None
    beta1: float | None
    beta2: float | None
    classifier_pooling: str | None
    code_dir: Path | str | None
    config: Any
    config_file: Any
    cpu_threads: int | None
    create_logfile: bool | None
    data_loader: str | None
    deduplicate: str | None
    device: str | None
    document_separator: str | None
    dry_run: Any
    duplicate_factor: int | None
    early_stopping: int | None
    early_stopping_from: float | None
    embedding_rate_factor: float | None
    enable_cpu_affinity: str | None
    encoding: str | None
    end_learning_rate: float | None
    epochs: float | None
    epochs_of: str | None
    epsilon: float | None
    eval_dir: Path | str | None
    eval_freq: int | None
    eval_masked_lm_ratio: float | None
    eval_samples: int | None
    expected_steps: int | None
    finish_in: float | None
    fleet_strategies: str | None
    float32_all_reduce: str | None
    follow_links: bool | None
    from_checkpoint: Path | str | None
    from_phase1_final_params: Path | str | None
    from_pretrained_params: Path | str | None
    fuse_attention: str | None
    fuse_dropout_add: str | None
    fuse_linear: str | None
    fuse_mha: bool | None
    global_attn_every_n_layers: int | None
    global_batch_size: int | None
    global_rope_theta: float | None
    gradient_merge_steps: int | None
    group_by: str | None
    group_by_length: bool | None
    hardware: Any
    head_rate_factor: float | None
    held_out_fraction: float | None
    hidden_act: str | None
    hidden_dropout_prob: float | None
    hidden_size: int | None
    hours: float | None
    initial_attention: str | None
    initializer_range: float | None
    input_dir: Path | str | None
    intermediate_size: int | None
    job_name: str | None
    keep_best: bool | None
    keep_checkpoints: int | None
    language: str | None
    last_step_of_checkpoint: int | str | None
    layer_norm_eps: float | None
    learning_rate: float | None
    local_attention: int | None
    local_rope_theta: float | None
    log_freq: int | None
    loss_scale_backoff_factor: float | None
    loss_scale_growth_factor: float | None
    loss_scale_growth_interval: int | None
    loss_spike_action: str | None
    loss_spike_factor: float | None
    lowercase: bool | None
    lr_decay_from: str | None
    lr_decay_power: float | None
    lr_decay_share: float | None
    lr_schedule: str | None
    masked_lm_ratio: float | None
    masking: str | None
    master: str | None
    max_consecutive_skipped_steps: int | None
    max_grad_norm: float | None
    max_position_embeddings: int | None
    max_predictions_per_seq: int | None
    max_seq_length: int | None
    max_steps: int | None
    mean_padded_length: Any
    model: Path | str | None
    model_prefix: str | None
    model_type: str | None
    node_rank: int | None
    num_attention_heads: int | None
    num_dask_workers: int | None
    num_gpus: int | None
    num_hidden_layers: int | None
    num_nodes: int | None
    num_shards_per_worker: int | None
    num_steps_per_checkpoint: int | None
    num_workers: int | None
    objective: str | None
    optimizer: str | None
    overfitting_evaluations: int | None
    pad_token_id: int | None
    parts: Any
    peak_tflops: float | None
    phase1: int | None
    phase1_bin_size: int | None
    phase2: int | None
    phase2_bin_size: int | None
    plan: Any
    price_per_hour: Any
    rank_check_freq: int | None
    recompute: bool | None
    replay: Any
    replay_share: float | None
    report_file: Path | str | None
    report_to: str | None
    sample_ratio: float | None
    scale_loss: float | None
    seed: int | None
    sequence_length_multiple: int | None
    source_code: bool | None
    steps_this_run: int | None
    strip_accents: bool | None
    strip_log_stamps: bool | None
    text_column: str | None
    tf32: str | None
    type_vocab_size: int | None
    unpad: str | None
    use_dynamic_loss_scaling: bool | None
    use_pure_fp16: bool | None
    visualdl: bool | None
    vocab_file: Path | str | None
    vocab_size: int | None
    warmup_proportion: float | None
    warmup_start_lr: float | None
    watchdog_seconds: float | None
    weight_decay: float | None
    whole_word_masking: bool | None
    wikipedia_source: Path | str | None
    word_segmenter: str | None
    words: Any


class ClassifySettings(TypedDict, total=False):
    always_adapt: bool | None
    amp: bool | None
    amp_dtype: str | None
    async_checkpoint: bool | None
    attention_probs_dropout_prob: float | None
    balance: bool | None
    batch_size: int | None
    benchmark: bool | None
    benchmark_steps: int | None
    benchmark_warmup_steps: int | None
    bert_model: str | None
    best_by: str | None
    beta1: float | None
    beta2: float | None
    classifier_pooling: str | None
    config: Any
    config_file: Any
    contrastive_start: bool | None
    cpu_threads: int | None
    cross_validate: int | None
    data_dir: Path | str | None
    device: str | None
    do_eval: bool | None
    do_predict: bool | None
    do_train: bool | None
    download: bool | None
    dry_run: Any
    embedding_rate_factor: float | None
    enable_cpu_affinity: str | None
    encoding: str | None
    end_learning_rate: float | None
    epochs: float | None
    epsilon: float | None
    equal_letters: bool | None
    eval: Path | str | None
    eval_file: Path | str | None
    eval_freq: int | None
    finish_in: float | None
    fleet_strategies: str | None
    float32_all_reduce: str | None
    fold: int | None
    folds: int | None
    from_checkpoint: Path | str | None
    from_pretrained_params: Path | str | None
    fuse_attention: str | None
    fuse_dropout_add: str | None
    fuse_linear: str | None
    fuse_mha: bool | None
    global_attn_every_n_layers: int | None
    global_batch_size: int | None
    global_rope_theta: float | None
    gradient_merge_steps: int | None
    group_by: str | None
    hardware: Any
    head_rate_factor: float | None
    header: bool | None
    hidden_act: str | None
    hidden_dropout_prob: float | None
    hidden_size: int | None
    hours: float | None
    index_column: str | None
    initializer_range: float | None
    intermediate_size: int | None
    keep_baseline: bool | None
    keep_best: bool | None
    keep_checkpoints: int | None
    label_column: str | None
    label_separator: str | None
    language: str | None
    last_step_of_checkpoint: int | str | None
    layer_norm_eps: float | None
    learning_rate: float | None
    local_attention: int | None
    local_rope_theta: float | None
    log_freq: int | None
    loss_scale_backoff_factor: float | None
    loss_scale_growth_factor: float | None
    loss_scale_growth_interval: int | None
    loss_spike_action: str | None
    loss_spike_factor: float | None
    lowercase: bool | None
    lr_decay_from: str | None
    lr_decay_power: float | None
    lr_decay_share: float | None
    lr_schedule: str | None
    master: str | None
    max_bad_line_fraction: float | None
    max_consecutive_skipped_steps: int | None
    max_grad_norm: float | None
    max_position_embeddings: int | None
    max_seq_length: int | None
    max_steps: int | None
    mean_padded_length: Any
    model: Path | str | None
    model_prefix: str | None
    model_type: str | None
    node_rank: int | None
    num_attention_heads: int | None
    num_gpus: int | None
    num_hidden_layers: int | None
    num_nodes: int | None
    num_steps_per_checkpoint: int | None
    num_workers: int | None
    optimizer: str | None
    pad_token_id: int | None
    parts: Any
    peak_tflops: float | None
    plan: Any
    positive_label: str | None
    predict: Path | str | None
    predict_batch_size: int | None
    predict_file: Path | str | None
    price_per_hour: Any
    rank_check_freq: int | None
    recompute: bool | None
    regression: bool | None
    report_file: Path | str | None
    report_to: str | None
    scale_loss: float | None
    seed: int | None
    sequence_length_multiple: int | None
    steps_this_run: int | None
    strip_accents: bool | None
    task_name: str | None
    text_column: str | None
    text_pair_column: str | None
    tf32: str | None
    token_weights: bool | None
    type_vocab_size: int | None
    unpad: str | None
    use_dynamic_loss_scaling: bool | None
    use_pure_fp16: bool | None
    visualdl: bool | None
    vocab_file: Path | str | None
    vocab_size: int | None
    wanted_recall: float | None
    warmup_proportion: float | None
    warmup_start_lr: float | None
    watchdog_seconds: float | None
    weight_decay: float | None
    word_segmenter: str | None


class ExportSettings(TypedDict, total=False):
    calibration: Path | str | None
    config_file: Path | str | None
    keep_float: Sequence[Any] | None
    language: Sequence[Any] | None
    license: str | None
    lowercase: bool | None
    precision: str | None
    reduce_range: bool | None
    sample: Path | str | None
    strip_accents: bool | None
    task: str | None
    tolerance: float | None
    vocab_file: Path | str | None


class ConvertSettings(TypedDict, total=False):
    allow_unknown: bool | None
    check: bool | None
    config_file: Path | str | None
    fused_qkv: str | None
    hub_private: bool | None
    hub_token_file: Path | str | None
    hub_update: bool | None
    keep_padding: bool | None
    language: Sequence[Any] | None
    license: str | None
    lowercase: bool | None
    strip_accents: bool | None
    task: str | None
    to_hub: str | None
    vocab_file: Path | str | None


class ServeSettings(TypedDict, total=False):
    access_log: bool | None
    allow_origin: str | None
    allowed_hosts: str | None
    cpu_threads: int | None
    device: str | None
    host: str | None
    index: Path | str | None
    lowercase: bool | None
    max_batch_size: int | None
    max_batch_tokens: int | None
    max_body_bytes: int | None
    max_characters: int | None
    max_connections: int | None
    max_inputs: int | None
    max_queue: int | None
    max_seq_length: int | None
    max_wait_ms: float | None
    read_seconds: float | None
    reranker: str | None
    strip_accents: bool | None
    task: str | None
    timeout_seconds: float | None
    top_k: int | None
    vocab_file: Path | str | None
