"""Recipes by name: one phase each in RECIPES, both phases and the machines in PRESETS.

A recipe is settings and nothing else: it says what differs from its parent, and where that was published.
"""

from bert.pretraining.recipes.presets import PRESETS, Preset, Recipe

__all__ = ["PRESETS", "RECIPES", "Preset"]

RECIPES: dict[str, Recipe] = {
    recipe.__name__: recipe for preset in PRESETS.values() for recipe in (preset.phase1, preset.phase2)
}
