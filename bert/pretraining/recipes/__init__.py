"""Recipes by name: one phase each in RECIPES, both phases and the machines in PRESETS.

A recipe is settings and nothing else: it says what differs from its parent, and where that was published.
"""

from collections.abc import Callable

from bert.pretraining.config import PretrainingConfig
from bert.pretraining.recipes import published as pretraining
from bert.pretraining.recipes import quickstart
from bert.pretraining.recipes.presets import PRESETS, Preset

__all__ = ["PRESETS", "RECIPES", "Preset"]

RECIPES: dict[str, Callable[[], PretrainingConfig]] = {
    recipe.__name__: recipe
    for recipe in (
        pretraining.phase1_large,
        pretraining.phase2_large,
        pretraining.phase1_large_tf32,
        pretraining.phase2_large_tf32,
        pretraining.phase1_large_pytorch,
        pretraining.phase2_large_pytorch,
        pretraining.phase1_large_tensorflow,
        pretraining.phase2_large_tensorflow,
        pretraining.phase1_base,
        pretraining.phase2_base,
        pretraining.phase1_base_adamw,
        pretraining.phase2_base_adamw,
        quickstart.quickstart_phase1,
        quickstart.quickstart_phase2,
    )
}
