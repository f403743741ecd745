"""Every combination of settings that changes which operators run on GPUs, in programs of a small model.

Kernels depend on places and types of data, not on sizes, so two layers tell as much as the recipes' 24.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from bert.config.architecture import BertConfig, FusedKernels
from bert.config.training_settings import OptimizerSettings, PrecisionSettings

MODEL = BertConfig(
    vocab_size=64,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
)
PRECISIONS = {
    "float32": PrecisionSettings(),
    "float16": PrecisionSettings(amp=True),
    "float16, fixed loss scale": PrecisionSettings(amp=True, use_dynamic_loss_scaling=False),
    "bfloat16": PrecisionSettings(amp=True, amp_dtype="bfloat16"),
    "pure float16": PrecisionSettings(amp=True, use_pure_fp16=True),
}
KERNELS = [FusedKernels(*map(bool, flags)) for flags in itertools.product((0, 1), repeat=4)]
FEW_KERNELS = [kernels for kernels in KERNELS if kernels.linear == kernels.dropout_add == kernels.attention]
FINE_TUNING = ("QuestionAnswering", "SequenceClassification", "SequenceRegression", "TokenClassification")


def combinations() -> Iterator[tuple[str, str, str, FusedKernels]]:
    """(objective, optimizer, precision, kernels): all kernels for pre-training, all or none for the other objectives.

    LAMB accumulates over two micro-steps, AdamW updates after each.
    """
    objectives = [("Pretraining", "Lamb", KERNELS), ("MaskedLM", "Lamb", FEW_KERNELS)]
    objectives += [(name, "AdamW", FEW_KERNELS) for name in ("Pretraining", *FINE_TUNING)]
    for (objective, optimizer, sets), precision in itertools.product(objectives, PRECISIONS):
        for kernels in sets:
            if PRECISIONS[precision].amp or not kernels.attention:  # others are refused
                yield objective, optimizer, precision, kernels


def named(objective: str, optimizer: str, precision: str, kernels: FusedKernels) -> str:
    used = [name for name in ("linear", "dropout_add", "attention", "unpad") if getattr(kernels, name)]
    return f"{objective}, {optimizer}, {precision}, {' + '.join(used) or 'plain'}"


def missing(group: Any, device: str) -> dict[str, list[str]]:
    """Combination -> its operators without a kernel, each after the kind of program.

    Args:
        group: the ranks that the programs are built for.
    """
    from tests.gpu.kernel_coverage import missing_kernels

    return {
        named(*combination): [
            f"{kind}: {problem}"
            for kind, program in _programs(group, *combination)
            for problem in missing_kernels(program, device)
        ]
        for combination in combinations()
    }


def _programs(
    group: Any, objective_name: str, optimizer: str, precision_name: str, kernels: FusedKernels
) -> Iterator[tuple[str, Any]]:
    from bert.model import objectives
    from program import build_evaluation_program, build_prediction_program, build_training_program

    precision = PRECISIONS[precision_name]
    objective = getattr(objectives, f"{objective_name}Objective")(MODEL, True, kernels)
    training = build_training_program(
        objective,
        OptimizerSettings(optimizer=optimizer),
        precision,
        group,
        gradient_accumulation_steps=2 if optimizer == "Lamb" else 1,
        num_scheduled_steps=10,
    )
    prediction = build_prediction_program(objective, precision)
    yield "training", training.main
    yield "start-up", training.startup
    yield "evaluation", build_evaluation_program(objective, precision).main
    yield "prediction", prediction.main
    yield "start-up of prediction", prediction.startup
