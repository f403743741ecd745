"""Settings of run_reranker.py: files of mined negatives and candidates, number of negatives, number of hits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from bert.config.entry_point import EntryPoint, Rule
from bert.config.settings_base import MayDiffer
from bert.finetuning.config import FineTuningConfig, TaskDataSettings, implied_settings, is_small_modern, modes_of_files
from bert.finetuning.inquiries import inquiries

# With --hours the time ends the training. Evaluations read many sequences, so only the end is evaluated.
TIMED = {"lr_schedule": "wsd", "epochs": 20.0, "warmup_proportion": 0.01, "eval_freq": 1_000_000}
MOST_QUERIES = 500  # most held-out queries to measure on
_USUAL = {"batch_size": 8, "epochs": 2.0, "warmup_proportion": 0.1}


class RerankerDataSettings(TaskDataSettings):
    train_file: Path | None = Field(None, description="JSON lines of pairs with mined negatives")
    eval_file: Path | None = Field(None, description="JSON lines of held-out queries with candidates")
    num_negatives: int = Field(4, ge=1, description="negatives in the group of each passage")
    depth: int = Field(20, ge=2, description="candidates of a query that are reranked")
    most_queries: MayDiffer[int] = Field(MOST_QUERIES, ge=2, description="held-out queries to measure on, at most")


class RerankerConfig(FineTuningConfig):
    """All settings of a training of a reranker."""

    sample_name: ClassVar[str] = "pairs"

    data: RerankerDataSettings

    def stage(self) -> str:
        return "reranker"

    @property
    def sequences_a_sample(self) -> int:
        return 1 + self.data.num_negatives


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that the weights and the files imply."""
    implied = modes_of_files(values) | implied_settings(values)
    hidden_size = int(implied.get("hidden_size", 768))
    rate = 5e-4 if is_small_modern(implied) else float(f"{3e-5 * (768 / hidden_size) ** 1.5:.1g}")
    length = min(128, int(implied.get("max_position_embeddings", 512)))
    return implied | _USUAL | {"learning_rate": rate, "max_seq_length": length}


_TASK = "bert.vectors.reranking:RerankingTask"
ENTRY = EntryPoint(
    script="run_reranker.py",
    config_class=RerankerConfig,
    task=_TASK,
    recipes={},
    examples=(
        "--pairs results/vectors/mined/negatives.jsonl --model results/quickstart",
        "--eval results/vectors/mined/candidates.jsonl --model results/vectors/reranker",
    ),
    inquiries=inquiries(_TASK),
    aliases={"train_file": ("--pairs",), "eval_file": ("--eval",)},
    rules=(Rule(implies=_implied),),
    usage="--pairs FILE --model WEIGHTS",
    description="Train a reranker, which reads a query and a passage together, on mined negatives.",
)
