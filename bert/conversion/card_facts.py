"""Facts from the records of a training for its model card, without names of files and folders.

A record may be of another version, changed by hand or damaged. A fact of a wrong type is left out and named.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bert.reporting.job_file import job_facts
from bert.reporting.progress import duration
from bert.reporting.run_record import RunRecord
from bert.samples.manifest import read_manifest


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True)
    record: ClassVar[str]  # names the record in a note if all of its facts are damaged


class TrainingFacts(_Facts):
    """Settings and scores of a training; a value that was not recorded is None."""

    record = "config.yaml, summary.json"
    objective: str | None = None
    masked_lm_ratio: float | None = None
    masking: str | None = None
    max_seq_length: int | None = None
    global_batch_size: int | None = None
    batch_size: int | None = None
    gradient_merge_steps: int | None = None
    hidden_dropout_prob: float | None = None
    attention_probs_dropout_prob: float | None = None
    optimizer: str | None = None
    weight_decay: float | None = None
    learning_rate: float | None = None
    embedding_rate_factor: float | None = None
    lr_schedule: str | None = None
    warmup_steps: int | None = None
    seed: int | None = None
    world_size: int | None = None
    processor: str | None = None
    e2e_train_time: float | None = None  # seconds
    task_name: str | None = None
    amp: bool | None = None
    amp_dtype: str | None = None
    updates: int | None = None

    def sequences_per_update(self) -> int | None:
        if self.global_batch_size is not None:
            return self.global_batch_size
        sizes = (self.batch_size, self.gradient_merge_steps, self.world_size)
        known = [size for size in sizes if size]
        return math.prod(known) if len(known) == len(sizes) else None


class TextFacts(_Facts):
    """Counts of the user's text; a count that was not recorded is None."""

    record = "text in job.json"
    words: int | None = None
    characters: int | None = None
    documents: int | None = None
    is_estimate: bool = False


class DataFacts(_Facts):
    """How the user's text was split into training and held-out text."""

    record = "data in job.json"
    held_out_fraction: float | None = None
    lang: str | None = None


class ShardCounts(_Facts):
    """Counts in a manifest; a missing count is None."""

    record = "counts in manifest.json"
    documents: int | None = Field(None, alias="documents used")
    sentences: int | None = None
    tokens: int | None = None
    samples: int | None = None


F = TypeVar("F", bound=_Facts)


def valid_facts(kind: type[F], values: object, damaged: list[str]) -> F:
    """Keep the recorded facts that have the right types.

    Args:
        values: a mapping from names to values, as a record has it; names that `kind` lacks are ignored.
        damaged: gets the names of the facts that have a wrong type.
    """
    if not isinstance(values, Mapping):
        damaged.append(kind.record)
        return kind()
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        wrong = {str(problem["loc"][0]) for problem in error.errors()}
        damaged += sorted(wrong)
        return kind.model_validate({name: value for name, value in values.items() if name not in wrong})


def language_of(runs: Sequence[RunRecord]) -> str:
    """Language of the training text, such as de, as the newest training recorded it; empty if none did."""
    facts = (job_facts(run.directory.parent, "own_text") for run in reversed(runs))
    recorded = (valid_facts(DataFacts, own.get("data") or {}, []).lang for own in facts)
    return next(filter(None, recorded), "")


def training_rows(run: RunRecord, begins_with: str, damaged: list[str]) -> list[list[str]]:
    """Rows [name, value] for the recorded facts of a training.

    Args:
        begins_with: what users may know of the weights that the training began with.
        damaged: gets the names of the facts that have a wrong type.
    """
    values = {**run.settings, **run.summary, "updates": run.last_step()}
    facts = valid_facts(TrainingFacts, values, damaged)
    rows = {
        "text": _training_text_row(run, damaged),
        "labels": "own labels" if facts.task_name == "custom" else facts.task_name or "",
        "begins with": begins_with,
        **_settings(facts),
        "updates": _count_text(facts.updates, ""),
        "seed": "" if facts.seed is None else str(facts.seed),
        "processor": _processor(facts),
        "time": duration(facts.e2e_train_time) if facts.e2e_train_time else "",
        "rate of embeddings": _rate_of_embeddings(facts),
        "arithmetic": f"mixed {facts.amp_dtype}" if facts.amp else "float32",
    }
    return [[name, value] for name, value in rows.items() if value]


def _settings(facts: TrainingFacts) -> dict[str, str]:
    """Rows about input and learning of a training; a row with an unknown value is left out."""
    masks = dropout = optimizer = learning_rate = ""
    if facts.masked_lm_ratio is not None and facts.masking is not None:
        masks = f"{facts.masked_lm_ratio:.0%}, {facts.masking}"
    if facts.hidden_dropout_prob is not None and facts.attention_probs_dropout_prob is not None:
        attention = f"{facts.attention_probs_dropout_prob:g} of the attention"
        dropout = f"{facts.hidden_dropout_prob:g} of the layers, {attention}"
    if facts.optimizer is not None and facts.weight_decay is not None:
        optimizer = f"{facts.optimizer}, weight decay {facts.weight_decay:g}"
    if facts.learning_rate is not None and facts.lr_schedule is not None and facts.warmup_steps is not None:
        warmup = f"warm-up of {facts.warmup_steps:,} updates"
        learning_rate = f"{facts.learning_rate:g} at its peak, {facts.lr_schedule}, {warmup}"
    return {
        "objective": facts.objective or "",
        "masks": masks,
        "longest sequence": _count_text(facts.max_seq_length, " tokens"),
        "batch": _count_text(facts.sequences_per_update(), " sequences"),
        "dropout": dropout,
        "optimizer": optimizer,
        "learning rate": learning_rate,
    }


def _processor(facts: TrainingFacts) -> str:
    return f"{facts.world_size} x {facts.processor}" if facts.world_size is not None and facts.processor else ""


def _rate_of_embeddings(facts: TrainingFacts) -> str:
    factor = facts.embedding_rate_factor or 1
    return "" if factor == 1 else f"{factor:g} times the learning rate"


def _count_text(number: int | None, unit: str) -> str:
    return "" if number is None else f"{number:,}{unit}"


def _training_text_row(run: RunRecord, damaged: list[str]) -> str:
    own = job_facts(run.directory.parent, "own_text")
    if own.get("text"):
        return _own_text(own, damaged)
    counts = _shard_counts(run, damaged)
    if counts is None:
        return ""
    return _counts_text(
        (counts.documents, " documents"),
        (counts.sentences, " sentences"),
        (counts.tokens, " tokens"),
        (counts.samples, " samples"),
    )


def _own_text(own: Mapping[str, Any], damaged: list[str]) -> str:
    text = valid_facts(TextFacts, own["text"], damaged)
    fraction = valid_facts(DataFacts, own.get("data") or {}, damaged).held_out_fraction
    counts = _counts_text((text.words, " words"), (text.characters, " characters"), (text.documents, " documents"))
    about = "about " if text.is_estimate else ""
    size = f", {about}{counts}" if counts else ""
    return f"own text{size}" + ("" if fraction is None else f"; {fraction:.1%} held out")


def _shard_counts(run: RunRecord, damaged: list[str]) -> ShardCounts | None:
    """Counts of the shards that a training read, if the shards still exist."""
    folder = run.settings.get("input_dir")
    if not isinstance(folder, str) or not folder:
        return None
    try:
        manifest = read_manifest(folder) if Path(folder).is_dir() else None
    except (OSError, ValueError):
        damaged.append("manifest.json")
        return None
    return None if manifest is None else valid_facts(ShardCounts, manifest.counts, damaged)


def _counts_text(*counts: tuple[int | None, str]) -> str:
    return ", ".join(_count_text(number, unit) for number, unit in counts if number is not None)
