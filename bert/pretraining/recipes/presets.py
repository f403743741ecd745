"""Complete pre-trainings by name: the recipes of both phases and the machines they are meant for.

The recipes fix the global batch, so more nodes mean fewer micro-steps per update and the same training.
"""

import dataclasses
from collections.abc import Callable

from bert.pretraining.config import PretrainingConfig
from bert.pretraining.recipes import published as pretraining
from bert.pretraining.recipes import quickstart

Recipe = Callable[[], PretrainingConfig]


@dataclasses.dataclass(frozen=True)
class Preset:
    phase1: Recipe
    phase2: Recipe
    num_nodes: int = 1
    processes_per_node: int = 8

    def world_size(self) -> int:
        return self.num_nodes * self.processes_per_node


NODE_COUNTS = (1, 2, 4, 8, 16, 32)
_DGX_RECIPES: dict[str, tuple[Recipe, Recipe]] = {
    "amp": (pretraining.phase1_large, pretraining.phase2_large),
    "tf32": (pretraining.phase1_large_tf32, pretraining.phase2_large_tf32),
}


def _dgx_name(nodes: int, precision: str) -> str:
    return f"dgxa100-80g_{'' if nodes == 1 else f'{nodes}x'}8gpu_{precision}"


PRESETS: dict[str, Preset] = {
    _dgx_name(nodes, precision): Preset(*recipes, num_nodes=nodes)
    for precision, recipes in _DGX_RECIPES.items()
    for nodes in NODE_COUNTS
}
PRESETS |= {
    "large": Preset(pretraining.phase1_large, pretraining.phase2_large),
    "large_pytorch": Preset(pretraining.phase1_large_pytorch, pretraining.phase2_large_pytorch),
    "large_tensorflow": Preset(pretraining.phase1_large_tensorflow, pretraining.phase2_large_tensorflow),
    "base": Preset(pretraining.phase1_base, pretraining.phase2_base),
    "base_adamw": Preset(pretraining.phase1_base_adamw, pretraining.phase2_base_adamw),
    "quickstart": Preset(quickstart.quickstart_phase1, quickstart.quickstart_phase2, processes_per_node=1),
}
