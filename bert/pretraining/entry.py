"""The entry point of run_pretraining.py: its settings, recipes and inquiries."""

from bert.config.entry_point import EntryPoint
from bert.planning.planner import PLAN
from bert.pretraining.config import LENGTHS, PretrainingConfig
from bert.pretraining.dry_run import DRY_RUN
from bert.pretraining.recipes import RECIPES

ENTRY = EntryPoint(
    script="run_pretraining.py",
    config_class=PretrainingConfig,
    task="bert.pretraining.task:Pretraining",
    recipes=RECIPES,
    usage="(--phase1 | --phase2 | --config NAME_OR_FILE) [flags]",
    description="Pre-train BERT on PaddlePaddle.",
    inquiries=(DRY_RUN, PLAN),
    alternatives=LENGTHS,
)
