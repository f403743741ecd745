"""Recipes by name: one phase each in RECIPES, both phases and the machines in PRESETS.

A recipe contains only settings. Its docstring names its differences from its parent and their source.
"""

from bert.pretraining.recipes.presets import PRESETS, Preset, Recipe

__all__ = ["PRESETS", "RECIPES", "Preset"]

RECIPES: dict[str, Recipe] = {
    recipe.__name__: recipe for preset in PRESETS.values() for recipe in (preset.phase1, preset.phase2)
}
