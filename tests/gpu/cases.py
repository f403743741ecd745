"""What is recorded: every recipe for GPUs at eight ranks, and what else changes the program. No Paddle here."""

import dataclasses
from typing import Any

from bert.config import derive
from bert.recipes import RECIPES

NUM_RANKS = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """Settings, and how many GPUs share the work."""

    config: Any
    num_ranks: int = NUM_RANKS

    def objective(self):
        """The objective of the recipe's stage."""
        from bert.objectives import PretrainingObjective

        return PretrainingObjective(self.config.model, self.config.hardware.fuse_mha)

    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the largest feed of a pass."""
        batch, data = self.config.batch.batch_size, self.config.data
        tokens = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), (batch, data.max_seq_length))
        masked = (batch * data.max_predictions_per_seq,)
        predictions = {f"masked_lm_{kind}": masked for kind in ("positions", "labels", "weights")}
        return {**tokens, **predictions, "next_sentence_labels": (batch,)}


def cases() -> dict[str, Case]:
    """By name: the recipes, one of them on so many nodes that an update is one pass, and settings that change it."""
    found = {name: Case(recipe()) for name, recipe in RECIPES.items() if not name.startswith("quickstart")}
    large = RECIPES["phase1_large"]()
    found["phase1_large_32_nodes"] = Case(large, 32 * NUM_RANKS)
    for name, changes in VARIANTS.items():
        found[f"phase1_large_{name}"] = Case(derive(large, **changes))
    return found


VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16": dict(amp_dtype="bfloat16"),
    "pure_fp16": dict(use_pure_fp16=True),
    "separate_qkv": dict(fuse_mha=False),
}
