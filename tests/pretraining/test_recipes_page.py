"""docs/reference/recipes_and_models.md lists every preset, recipe and built-in model, with its figures."""

import re

from bert import REPOSITORY
from bert.config.architecture import BUILT_IN_MODELS
from bert.pretraining.recipes import PRESETS, RECIPES, evening

PAGE = (REPOSITORY / "docs/reference/recipes_and_models.md").read_text(encoding="utf-8")


def cells_by_name(heading: str) -> dict[str, list[str]]:
    """Map each name in backticks of a row's first cell to the row's other cells, for a section's table."""
    section = re.split(r"^## ", PAGE.split(f"## {heading}\n")[1], flags=re.M)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name: cells for first, *cells in rows for name in re.findall(r"`([^`]+)`", first)}


def test_the_page_has_the_sizes_of_every_built_in_model():
    sizes = {
        name: [
            f"{model.num_hidden_layers}",
            f"{model.hidden_size:,}",
            f"{model.num_attention_heads}",
            f"{model.intermediate_size:,}",
            f"{model.vocab_size:,}",
            f"{model.max_position_embeddings:,}",
            f"{model.num_parameters() / 1e6:.1f} million",
        ]
        for name, model in BUILT_IN_MODELS.items()
    }
    assert cells_by_name("Which models are built in?") == sizes


def test_the_page_has_the_figures_of_every_recipe():
    rows = cells_by_name("Which recipes train one phase?")
    for name, recipe in RECIPES.items():
        config = recipe()
        figures = [
            f"{config.run.max_steps:,}",
            f"{config.batch.global_batch_size:,}",
            f"{config.data.max_seq_length:,}",
            {"Lamb": "LAMB"}.get(config.optimizer.optimizer, config.optimizer.optimizer),
            f"{config.optimizer.learning_rate:g}",
        ]
        assert rows[re.sub("_(tf32|pytorch|tensorflow)$", "", name)] == figures, name


def test_the_page_names_every_preset():
    """The page names presets of several nodes by the first and the last preset."""
    named = cells_by_name("Which presets train both phases?")
    assert [name for name in [*PRESETS, evening.NAME] if name not in named and "x8gpu" not in name] == []
    assert set(named) <= {*PRESETS, evening.NAME}
