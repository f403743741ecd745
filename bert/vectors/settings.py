"""Settings of run_vectors.py: pairs or text to train on, how a text becomes a vector, and a model to compare with."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bert.config.entry_point import EntryPoint, Rule
from bert.config.flags import flag_name
from bert.config.settings_base import MayDiffer, ReadWith
from bert.conversion.task_file import read_usage, unread_vector_steps
from bert.conversion.usage import Usage, VectorForm
from bert.finetuning.config import (
    FineTuningConfig,
    TaskDataSettings,
    implied_settings,
    is_small_modern,
    modes_of_files,
    settings_of_the_run,
    usual_settings,
)
from bert.finetuning.inquiries import inquiries
from bert.finetuning.model_files import named_weights
from bert.finetuning.text_files import implied_decoding
from data.text.findings import Findings
from data.text.inputs import list_inputs, total_bytes

logger = logging.getLogger(__name__)

USUAL_SHARE = 0.05  # share of the rows; a part that more rows have says nothing about a row
_BYTES_OF_A_PAIR = 3_000  # bytes of text that give one pair, roughly
# With --hours the time ends the training: the rate stays constant until its last share; epochs are an upper limit.
TIMED = {"lr_schedule": "wsd", "epochs": 100.0, "warmup_proportion": 0.01}
# For small models of the user's text, as measured in tests/research/finetuning.md. The micro-batch is the whole batch,
# so no vectors must be computed before it.
_SMALL_MODERN = {"learning_rate": 1e-3, "embedding_rate_factor": 10.0, "hidden_dropout_prob": 0.1, "batch_size": 128}
_BATCH = {"eval_freq": 100, "batch_size": 32, "global_batch_size": 128}  # pairs: of memory, and of negatives
# The flags of the files in which columns can be named, and their settings.
_TEXT, _PAIRS = ("--text", ["text"]), ("--pairs or --eval", ["train_file", "eval_file"])


class VectorDataSettings(TaskDataSettings):
    text: Path | None = Field(None, description="your text: its titles and paragraphs become pairs")
    text_field: Annotated[str | None, ReadWith("text")] = Field(
        None, description="column or field of --text in tables and JSON (default: inferred)"
    )
    train_file: Path | None = Field(None, description="table of queries and passages")
    eval_file: Path | None = Field(None, description="pairs to measure on (default: a part is held out)")
    query_column: Annotated[str | None, ReadWith("train_file", "eval_file")] = Field(
        None, description="column of the queries (default: inferred)"
    )
    passage_column: Annotated[str | None, ReadWith("train_file", "eval_file")] = Field(
        None, description="column of the passages (default: inferred)"
    )
    held_out_fraction: Annotated[float, ReadWith("eval_file", values=(None,))] = Field(
        0.1, gt=0, le=0.5, description="share of the pairs to measure on if there is no --eval"
    )
    repeated_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="take out parts, such as greetings and signatures, that stand in a larger share of the rows of a "
        "table; 1: take out nothing",
    )
    compare: MayDiffer[Path | None] = Field(None, description="another model to measure on the same queries")
    pooling: Literal["mean", "cls"] = Field("mean", description="the vector: mean of all tokens' states, or of [CLS]")
    query_prefix: str = Field("", description='before each query, such as "query: "; kept with the model')
    passage_prefix: str = Field("", description='before each passage, such as "passage: "; kept with the model')
    temperature: float = Field(0.05, gt=0, description="cosines are divided by it in the loss")
    shortest_vector: int = Field(0, ge=0, description="train also halves of the vector down to this size; 0: no")


class VectorConfig(FineTuningConfig):
    """All settings of a training of vectors for search."""

    sample_name: ClassVar[str] = "pairs"
    example_words: ClassVar[tuple[str, ...]] = ("--nearest", "YOUR QUESTION", "--in", "YOUR.txt")

    data: VectorDataSettings

    def stage(self) -> str:
        return "vectors"

    @property
    def sequences_a_sample(self) -> int:
        return 2

    def form(self) -> VectorForm:
        data, halves = self.data, [self.model.hidden_size >> shift for shift in range(1, 16)]
        sizes = tuple(size for size in halves if size >= data.shortest_vector > 0)
        if data.shortest_vector and not sizes:
            raise ValueError(
                f"shortest_vector={data.shortest_vector} must be at most {halves[0]}, half of the model's vector; "
                "lower --shortest-vector"
            )
        return VectorForm(data.pooling, True, data.query_prefix, data.passage_prefix, sizes)

    def needed_files(self) -> dict[str, str]:
        """The files that the settings must name: --text replaces the training file, and --eval is optional."""
        spared = {"train_file"} if self.data.text else set()
        spared |= {"eval_file"} if self.run.do_train and self.data.eval_file is None else set()
        return {name: mode for name, mode in super().needed_files().items() if name not in spared}


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are inferred from the weights, such as the pooling, and from the size of the data."""
    source = values.get("text") or values.get("train_file")
    if values.get("text") and values.get("train_file"):
        raise ValueError(f"--text {source} and --pairs {values['train_file']} are two sources of pairs; give one")
    for name, (needed, places) in (("text_field", _TEXT), ("query_column", _PAIRS), ("passage_column", _PAIRS)):
        if values.get(name) and not any(map(values.get, places)):
            raise ValueError(f"{name}={values[name]} is for {needed}; pass it too, or drop {flag_name(name)}")
    implied = modes_of_files({**values, "train_file": source}, held_out=True) | implied_settings(values)
    weights = named_weights(values)
    if weights is not None:
        folder = weights if weights.is_dir() else weights.parent
        if form := read_usage(folder).vectors:
            implied |= {name: getattr(form, name) for name in ("pooling", "query_prefix", "passage_prefix")}
        elif steps := unread_vector_steps(folder):
            logger.warning(
                "%s: %s of sentence-transformers is left out; training begins from its encoder",
                folder,
                ", ".join(steps),
            )
    if source is not None:
        flag = "text" if values.get("text") else "train_file"
        files = list_inputs([Path(str(source)).expanduser()], "auto", Findings(), flag=flag)
        usual = usual_settings(total_bytes(files) // _BYTES_OF_A_PAIR, {**implied, **values})
        is_small = is_small_modern(implied)
        implied |= usual | _BATCH | (_SMALL_MODERN if is_small else {})
        implied |= {"repeated_share": _repeated_share(values)}
        implied |= settings_of_the_run(values, "vectors") | implied_decoding({**implied, **values}, Usage())
    return implied


def _repeated_share(values: Mapping[str, Any]) -> float:
    """The setting of the resumed run, otherwise the usual share; 1 for a run of a version without this setting."""
    before = settings_of_the_run(values, "vectors", ("output_dir", "repeated_share"))
    return float(before.get("repeated_share", 1.0 if before else USUAL_SHARE))


_TASK = "bert.vectors.task:VectorTask"
ENTRY = EntryPoint(
    script="run_vectors.py",
    config_class=VectorConfig,
    task=_TASK,
    recipes={},
    examples=(
        "--text my_texts --model results/quickstart",
        "--pairs questions.csv --model bert-base-uncased --dry-run",
    ),
    inquiries=inquiries(_TASK),
    aliases={"train_file": ("--pairs",), "eval_file": ("--eval",)},
    rules=(Rule(implies=_implied),),
    usage="(--text FOLDER | --pairs FILE) --model WEIGHTS",
    description="Train vectors of texts for search, and measure how well they find.",
)
