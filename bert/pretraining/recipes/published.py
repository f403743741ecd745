"""Published pre-training recipes. Each says where it comes from and what differs from its parent.

Global batches are given, micro-steps per update are not: the same recipe keeps its global batch on any number of GPUs.
Data is read from $BERT_PREP_WORKING_DIR.
"""

from pathlib import Path

from bert.config.training_settings import BUILT_IN_MODELS, BatchSettings, OptimizerSettings, PrecisionSettings, derive
from bert.pretraining.config import DataSettings, PretrainingConfig, PretrainingRunSettings

_SHARDS = Path("$BERT_PREP_WORKING_DIR/pretrain")


def phase1_large() -> PretrainingConfig:
    """BERT-large, sequence length 128, LAMB at a global batch of 65,536 (You et al., 2020).

    7,038 updates at a peak of 6e-3, the first 2,000 of them warm-up, linear decay, as NVIDIA trains it on 8 A100-80GB:
    256 sequences in a micro-batch, mixed precision with a loss scale that starts at 2^20.
    """
    return PretrainingConfig(
        model=BUILT_IN_MODELS["bert-large-uncased"],
        data=DataSettings(
            input_dir=_SHARDS / "phase1/unbinned/parquet",
            vocab_file=Path("$BERT_PREP_WORKING_DIR/vocab/bert-large-uncased-vocab.txt"),
            max_seq_length=128,
            max_predictions_per_seq=20,
        ),
        batch=BatchSettings(batch_size=256, global_batch_size=65_536),
        optimizer=OptimizerSettings(learning_rate=6e-3, warmup_proportion=0.2843),
        precision=PrecisionSettings(amp=True),
        run=PretrainingRunSettings(
            phase=1, max_steps=7_038, seed=12_439, bert_model="bert-large-uncased", num_steps_per_checkpoint=200
        ),
    )


def phase2_large() -> PretrainingConfig:
    """Sequence length 512, continuing phase 1 (You et al., 2020): 1,563 updates of 32,768, shards in bins of 64.

    64 sequences in a micro-batch, where NVIDIA's has 32: at most 67 of 80 GB, and half as many casts of the parameters
    and additions to the gradients.
    """
    return derive(
        phase1_large(),
        phase=2,
        max_steps=1_563,
        max_seq_length=512,
        max_predictions_per_seq=80,
        input_dir=_SHARDS / "phase2/bin_size_64/parquet",
        batch_size=64,
        global_batch_size=32_768,
        learning_rate=4e-3,
        warmup_proportion=0.128,
    )


def phase1_large_tf32() -> PretrainingConfig:
    """Float32 with TF32 matrix products: half as many sequences fit in a micro-batch."""
    return derive(phase1_large(), amp=False, tf32=True, batch_size=128)


def phase2_large_tf32() -> PretrainingConfig:
    """Float32 with TF32 matrix products: half as many sequences fit in a micro-batch."""
    return derive(phase2_large(), amp=False, tf32=True, batch_size=32)


def phase1_large_pytorch() -> PretrainingConfig:
    """NVIDIA's PyTorch recipe: the rate decays with the square root of what remains, not linearly."""
    return derive(phase1_large(), lr_decay_power=0.5)


def phase2_large_pytorch() -> PretrainingConfig:
    """NVIDIA's PyTorch recipe: the rate decays with the square root of what remains, not linearly."""
    return derive(phase2_large(), lr_decay_power=0.5)


def phase1_large_tensorflow() -> PretrainingConfig:
    """NVIDIA's TensorFlow 1 recipe: as PyTorch's, and the trust ratio is applied to biases and LayerNorm too."""
    return derive(phase1_large_pytorch(), always_adapt=True)


def phase2_large_tensorflow() -> PretrainingConfig:
    """NVIDIA's TensorFlow 1 recipe: as PyTorch's, and the trust ratio is applied to biases and LayerNorm too."""
    return derive(phase2_large_pytorch(), always_adapt=True)


def phase1_base() -> PretrainingConfig:
    """BERT-base on the recipe of BERT-large; nobody published this pair, so compare before you trust it."""
    return derive(phase1_large(), model=BUILT_IN_MODELS["bert-base-uncased"], bert_model="bert-base-uncased")


def phase2_base() -> PretrainingConfig:
    """BERT-base on the recipe of BERT-large; nobody published this pair, so compare before you trust it."""
    return derive(phase2_large(), model=BUILT_IN_MODELS["bert-base-uncased"], bert_model="bert-base-uncased")


def phase1_base_adamw() -> PretrainingConfig:
    """BERT-base as first trained (Devlin et al., 2019): Adam, 256 sequences, 10,000 updates of warm-up.

    Of the paper's million updates the first nine tenths have length 128; its one linear decay over all of them is
    cut at the boundary, so this phase ends at a tenth of the peak.
    """
    return derive(
        phase1_base(),
        optimizer="AdamW",
        learning_rate=1e-4,
        end_learning_rate=1e-5,
        max_steps=900_000,
        warmup_proportion=10_000 / 900_000,
        batch_size=32,
        global_batch_size=256,
        num_steps_per_checkpoint=1_000,
    )


def phase2_base_adamw() -> PretrainingConfig:
    """The last tenth of the updates, at length 512: the decay continues to zero without a second warm-up."""
    return derive(
        phase2_base(),
        optimizer="AdamW",
        learning_rate=1e-5,
        max_steps=100_000,
        warmup_proportion=0.0,
        batch_size=32,
        global_batch_size=256,
        num_steps_per_checkpoint=1_000,
    )
