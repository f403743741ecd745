"""Published pre-training recipes and the quickstart's; PRESETS are complete trainings with their machines.

A recipe is one phase. It contains only settings; its text names its source and what differs from its parent.
Global batches are given, micro-steps per update are not: the same recipe keeps its global batch on any number of GPUs.
Data of published recipes is read from $BERT_PREP_WORKING_DIR.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.config.batch_settings import PretrainingBatchSettings
from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.config.training_settings import BUILT_IN_MODELS, derive
from bert.pretraining.config import (
    DataSettings,
    PretrainingConfig,
    PretrainingInitializationSettings,
    PretrainingRunSettings,
)
from bert.pretraining.quickstart_folder import QUICKSTART_DIR

_SHARDS = Path("$BERT_PREP_WORKING_DIR/pretrain")
_QUICKSTART_DATA = QUICKSTART_DIR / "data"
Recipe = Callable[[], PretrainingConfig]
Pair = tuple[Recipe, Recipe]  # phase 1, phase 2


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
        batch=PretrainingBatchSettings(batch_size=256, global_batch_size=65_536),
        optimizer=OptimizerSettings(learning_rate=6e-3, warmup_proportion=0.2843),
        precision=PrecisionSettings(amp=True),
        run=PretrainingRunSettings(
            phase=1, max_steps=7_038, seed=12_439, bert_model="bert-large-uncased", num_steps_per_checkpoint=200
        ),
    )


def phase2_large() -> PretrainingConfig:
    """BERT-large, sequence length 512, continuing phase 1 (You et al., 2020): batches of 32,768, bins of 64.

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


def _derive_both(recipes: Pair, **changes: Any) -> Pair:
    first, second = recipes
    return lambda: derive(first(), **changes), lambda: derive(second(), **changes)


_LARGE: Pair = (phase1_large, phase2_large)
# Float32 with TF32 matrix products: half as many sequences fit in a micro-batch.
_TF32: Pair = (
    lambda: derive(phase1_large(), amp=False, tf32="on", batch_size=128),
    lambda: derive(phase2_large(), amp=False, tf32="on", batch_size=32),
)
# NVIDIA's PyTorch recipe: the rate decays with the square root over all updates.
_PYTORCH = _derive_both(_LARGE, lr_decay_power=0.5, lr_decay_from="start")
# NVIDIA's TensorFlow 1 recipe: as PyTorch's, and the trust ratio is applied to biases and LayerNorm too.
_TENSORFLOW = _derive_both(_PYTORCH, always_adapt=True)
# BERT-base with the rates and batches of BERT-large; NVIDIA publishes this pair with LAMB at other batches.
_BASE = _derive_both(_LARGE, model=BUILT_IN_MODELS["bert-base-uncased"], bert_model="bert-base-uncased")
# Both phases of BERT-base as first trained.
_ADAMW = {"optimizer": "AdamW", "batch_size": 32, "global_batch_size": 256, "num_steps_per_checkpoint": 1_000}


def phase1_base_adamw() -> PretrainingConfig:
    """BERT-base as first trained (Devlin et al., 2019): Adam, 256 sequences, 10,000 updates of warm-up.

    Of the paper's million updates the first nine tenths have length 128; its one linear decay over all of them is
    cut at the boundary, so this phase ends at a tenth of the peak.
    """
    rates = {"learning_rate": 1e-4, "end_learning_rate": 1e-5, "warmup_proportion": 10_000 / 900_000}
    return derive(_BASE[0](), max_steps=900_000, **rates, **_ADAMW)


def phase2_base_adamw() -> PretrainingConfig:
    """BERT-base's last tenth of the updates, at length 512: the decay continues without a second warm-up."""
    return derive(_BASE[1](), max_steps=100_000, learning_rate=1e-5, warmup_proportion=0.0, **_ADAMW)


def phase1_modernbert_base() -> PretrainingConfig:
    """ModernBERT-base, 1,024 tokens (Warner et al., 2024): 4,608 sequences an update, 30% masked, 8e-4 without decay.

    1.72 trillion tokens, rotary base 10,000. It differs: AdamW for StableAdamW, a constant batch where theirs grows to
    this one over 50 billion tokens, the vocabulary of a WordPiece. Shards: `--objective mlm`, 1,024 tokens.
    """
    return derive(
        _BASE[0](),
        model=BUILT_IN_MODELS["modernbert-base"],
        bert_model="modernbert-base",
        objective="mlm",
        global_rope_theta=10_000.0,
        input_dir=_SHARDS / "modernbert/1024",
        masking="dynamic",
        max_seq_length=1_024,
        masked_lm_ratio=0.3,
        max_predictions_per_seq=308,
        optimizer="AdamW",
        learning_rate=8e-4,
        beta2=0.98,
        weight_decay=1e-5,
        lr_schedule="constant",
        warmup_proportion=636 / 364_000,  # 3 billion tokens
        max_steps=364_000,
        batch_size=32,
        global_batch_size=4_608,
        num_steps_per_checkpoint=1_000,
    )


def phase2_modernbert_base() -> PretrainingConfig:
    """ModernBERT-base, 8,192 tokens, rotary base 160,000: 200 billion tokens at 3e-4, then 50 of decay.

    Only FlashAttention's memory is enough for such lengths.
    """
    return derive(
        phase1_modernbert_base(),
        phase=2,
        global_rope_theta=160_000.0,
        input_dir=_SHARDS / "modernbert/8192",
        max_seq_length=8_192,
        max_predictions_per_seq=2_458,
        learning_rate=3e-4,
        lr_schedule="wsd",
        lr_decay_share=0.2,
        warmup_proportion=0.0,
        max_steps=53_000,
        batch_size=8,
        global_batch_size=576,
        fuse_attention="on",
    )


def quickstart_phase1() -> PretrainingConfig:
    """A tiny model that learns something in minutes on two CPU cores, by the same program as large ones.

    2 layers of 128 with a vocabulary of 4,096, sequences of 64; LAMB on batches of 64, beta2 of RoBERTa. Its heads
    begin with the words beside a word.

    What else was tried with the same processor time: tests/research/pretraining.md.
    """
    return PretrainingConfig(
        model=BUILT_IN_MODELS["bert-quickstart"],
        data=DataSettings(
            input_dir=_QUICKSTART_DATA / "phase1/train",
            eval_dir=_QUICKSTART_DATA / "phase1/held_out",
            vocab_file=_QUICKSTART_DATA / "vocab.txt",
            max_seq_length=64,
            max_predictions_per_seq=10,
            masking="dynamic",
            num_workers=0,
        ),
        batch=PretrainingBatchSettings(batch_size=32, global_batch_size=64),
        optimizer=OptimizerSettings(learning_rate=8.5e-3, warmup_proportion=0.1, beta2=0.98),
        run=PretrainingRunSettings(
            phase=1,
            max_steps=2500,
            output_dir=QUICKSTART_DIR,
            bert_model="bert-quickstart",
            num_steps_per_checkpoint=250,
            eval_freq=250,
            eval_samples=1000,
        ),
        initialization=PretrainingInitializationSettings(initial_attention="neighbours"),
    )


def quickstart_phase2() -> PretrainingConfig:
    """Sequence length 128 in bins of 32, continuing phase 1 at two thirds of its learning rate."""
    return derive(
        quickstart_phase1(),
        phase=2,
        max_steps=500,
        max_seq_length=128,
        max_predictions_per_seq=20,
        group_by_length=True,
        input_dir=_QUICKSTART_DATA / "phase2/train",
        eval_dir=_QUICKSTART_DATA / "phase2/held_out",
        learning_rate=5.7e-3,
        initial_attention="random",  # it starts from weights of phase 1
        eval_freq=50,
        num_steps_per_checkpoint=50,
    )


# ---- complete trainings ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """The recipes of both phases, and the machines; with more nodes an update has fewer micro-steps."""

    phase1: str
    phase2: str
    num_nodes: int = 1
    processes_per_node: int = 8

    def world_size(self) -> int:
        return self.num_nodes * self.processes_per_node


NODE_COUNTS = (1, 2, 4, 8, 16, 32)
_PAIRS: dict[str, Pair] = {
    "large": _LARGE,
    "large_tf32": _TF32,
    "large_pytorch": _PYTORCH,
    "large_tensorflow": _TENSORFLOW,
    "base": _BASE,
    "base_adamw": (phase1_base_adamw, phase2_base_adamw),
    "modernbert_base": (phase1_modernbert_base, phase2_modernbert_base),
}
PRESETS: dict[str, Preset] = {
    f"dgxa100-80g_{'' if nodes == 1 else f'{nodes}x'}8gpu_{precision}": Preset(
        f"phase1_{recipes}", f"phase2_{recipes}", nodes
    )
    for precision, recipes in {"amp": "large", "tf32": "large_tf32"}.items()
    for nodes in NODE_COUNTS
}
PRESETS |= {name: Preset(f"phase1_{name}", f"phase2_{name}") for name in _PAIRS if name != "large_tf32"}
PRESETS["quickstart"] = Preset("quickstart_phase1", "quickstart_phase2", processes_per_node=1)
RECIPES: dict[str, Recipe] = {
    f"phase{phase}_{name}": recipe for name, recipes in _PAIRS.items() for phase, recipe in enumerate(recipes, 1)
}
RECIPES |= {"quickstart_phase1": quickstart_phase1, "quickstart_phase2": quickstart_phase2}
