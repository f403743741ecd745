"""Estimates of a run from its settings: FLOPs, memory, disk space."""

import dataclasses
from typing import Any

from bert.config.architecture import BertConfig
from bert.config.optimizer_settings import PrecisionSettings

_FLOAT32, _FLOAT16 = 4, 2  # bytes


def forward_flops_per_sequence(model: BertConfig, sequence_length: int, num_predictions: int) -> int:
    """FLOPs of the matrix products of one forward pass; a multiply-add counts as two.

    Per layer and token: 8 H^2 for queries, keys, values and output, 4 H I for the feed-forward block (6 H I with a
    gate), 4 S H for the scores and the weighted sum, of local attention too, whose band is computed and then hidden.
    Then the pooler at one position, which a ModernBERT lacks, and the masked-LM head at the masked positions only.
    What the program spares in the last layer (`BertModel.at`) is counted: these are the model's operations, by which
    programs are compared.
    """
    hidden, length = model.hidden_size, sequence_length
    feed_forward = 2 * model.feed_forward_products() * hidden * model.intermediate_size
    per_token = 8 * hidden**2 + feed_forward + 4 * length * hidden
    masked_lm_head = 2 * hidden**2 + 2 * hidden * model.padded_vocab_size()
    pooler_and_next_sentence = 0 if model.is_modern() else 2 * hidden**2 + 4 * hidden
    return model.num_hidden_layers * length * per_token + num_predictions * masked_lm_head + pooler_and_next_sentence


def training_flops_per_sequence(model: BertConfig, sequence_length: int, num_predictions: int) -> int:
    """FLOPs of forward and backward: each product has two more of its size in the backward pass."""
    return 3 * forward_flops_per_sequence(model, sequence_length, num_predictions)


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory of one rank, in bytes."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int

    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations

    def largest_batch_size(self, batch_size: int, share: int, most: int, usable_bytes: float) -> int | None:
        """Largest micro-batch (at most `most`) that fits and divides the rank's share of an update."""
        fixed, per_sequence = self.total() - self.activations, self.activations / batch_size
        sizes = range(most, 0, -1)
        return next((n for n in sizes if share % n == 0 and fixed + n * per_sequence <= usable_bytes), None)


def memory_per_rank(config: Any, world_size: int) -> Memory:
    """Memory for weights, gradients and their accumulation buffer, two moments, and activations.

    `config` is any TrainingConfig with a data section, resolved for the device of the rank (`resolve_auto`). A CPU
    computes in float32 with --amp too. The framework itself comes on top: CUDA's workspaces on a GPU, about 0.6 GB on a
    CPU, where the allocator holds twice the activations besides (BERT-base at length 64 grew by 81 MB a sequence; its
    program keeps 38).
    """
    numbers, precision = config.model.num_parameters(), config.precision
    if config.hardware.device == "cpu":
        precision = precision.model_copy(update={"amp": False})
    half_precision_copy = _FLOAT16 * numbers if precision.amp else 0
    merge_buffer = _FLOAT32 * numbers if config.batch.gradient_accumulation_steps(world_size) > 1 else 0
    num_predictions = config.num_predictions()  # fine-tuning has no masked-LM head
    length, kernels = config.data.max_seq_length, config.kernels()
    per_sequence = activation_bytes_per_sequence(
        config.model, length, num_predictions, precision, kernels.attention, config.hardware.recompute
    ) + attention_bias_bytes(config)
    return Memory(
        parameters=_FLOAT32 * numbers + half_precision_copy,
        gradients=_FLOAT32 * numbers + merge_buffer,
        optimizer=2 * _FLOAT32 * numbers,
        activations=config.batch.batch_size * config.sequences_a_sample * per_sequence,
    )


def activation_bytes_per_sequence(
    model: BertConfig,
    sequence_length: int,
    num_predictions: int,
    precision: PrecisionSettings,
    fuse_attention: bool = False,
    recompute: bool = False,
) -> int:
    """Bytes of the activations of a sequence that are kept for the backward pass.

    In each layer 8 H + 2 I numbers a token and 2 A S for the attention matrices, and dropout masks of a byte for 2 H +
    A S of them; then logits with their softmax in float32. A ModernBERT's layer keeps 11 H + 4 I, as queries and keys
    are turned and a gate multiplies, and A S without dropout.

    Fitted to the programs of the GPU recipes (tests/gpu/golden records what each keeps). With FlashAttention nothing of
    length x length is kept. The last layer is counted in full, though pre-training keeps less of it (`BertModel.at`).
    With recomputation, the other layers keep their input, and FlashAttention's result.
    """
    width = _FLOAT16 if precision.amp else _FLOAT32
    scores = 0 if fuse_attention else model.num_attention_heads * sequence_length
    hidden, inner, matrices = (11, 4, 1) if model.is_modern() else (8, 2, 2)
    matrices = 2 if model.attention_probs_dropout_prob > 0 else matrices
    per_token = width * (hidden * model.hidden_size + inner * model.intermediate_size + matrices * scores)
    per_token += 2 * model.hidden_size * (model.hidden_dropout_prob > 0)
    per_token += scores * (model.attention_probs_dropout_prob > 0)
    logits = 2 * _FLOAT32 * num_predictions * model.padded_vocab_size()
    per_recomputed_token = width * model.hidden_size * (1 + fuse_attention) if recompute else per_token
    return sequence_length * (per_token + (model.num_hidden_layers - 1) * per_recomputed_token) + logits


# Of a rank, beyond weights, gradients and moments. CPU: the framework, and the allocator's second copy of the
# activations (`memory_per_rank`). GPU: CUDA's context and workspaces.
_FRAMEWORK_BYTES = {"cpu": 0.6e9, "gpu": 2.0e9}
_ACTIVATION_COPIES = {"cpu": 2.1, "gpu": 1.1}
_STATES = 5  # weights, gradients, the buffer they are accumulated in, two moments


def rank_bytes(
    model: BertConfig,
    sequence_length: int,
    num_predictions: int,
    precision: PrecisionSettings,
    device: str,
    num_sequences: int,
) -> float:
    """Memory of a training rank with plain attention and a micro-batch of so many sequences.

    Args:
        device: cpu | gpu.
    """
    activations = activation_bytes_per_sequence(model, sequence_length, num_predictions, precision)
    states = _STATES * _FLOAT32 * model.num_parameters()
    return _FRAMEWORK_BYTES[device] + states + num_sequences * activations * _ACTIVATION_COPIES[device]


def attention_bias_bytes(config: Any) -> int:
    """Bytes of the attention biases (padding, and ModernBERT's window) for FlashAttention, per sequence."""
    kernels, copies = config.kernels(), 4 if config.model.is_modern() else 1
    return copies * _FLOAT16 * config.data.max_seq_length**2 if kernels.attention and not kernels.unpad else 0


def checkpoint_bytes(model: BertConfig) -> int:
    """Bytes of a checkpoint: weights and two moments in float32."""
    return 3 * _FLOAT32 * model.num_parameters()


def most_checkpoint_bytes(config: Any) -> int:
    """Bytes of all checkpoints at the worst moment: the kept checkpoints, and one that is being written."""
    number = config.run.keep_checkpoints + 1
    if config.keeps_best():
        number += 1
    if config.optimizer.lr_schedule == "wsd":  # the checkpoint before the decay
        number += 1
    return number * checkpoint_bytes(config.model)
