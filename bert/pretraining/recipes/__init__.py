"""Recipes by name: single phases in RECIPES; PRESETS are both phases and their machines."""

from bert.pretraining.recipes.published import PRESETS, RECIPES, Preset

__all__ = ["PRESETS", "RECIPES", "Preset"]
