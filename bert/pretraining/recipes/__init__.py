"""Recipes by name: one phase each in RECIPES, both phases and the machines in PRESETS."""

from bert.pretraining.recipes.published import PRESETS, QUICKSTART_DIR, RECIPES, Preset

__all__ = ["PRESETS", "QUICKSTART_DIR", "RECIPES", "Preset"]
