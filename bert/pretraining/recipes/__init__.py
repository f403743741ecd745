"""Recipes by name: one phase each in RECIPES, both phases and the machines in PRESETS."""

from bert.pretraining.recipes.published import PRESETS, RECIPES, Preset

__all__ = ["PRESETS", "RECIPES", "Preset"]
