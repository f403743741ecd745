"""The settings of fine-tuning: those of any run, with epochs, what to do, and defaults of its own. No Paddle inside.

A task subclasses `FineTuningConfig` with a `data` section that subclasses `TaskDataSettings`, and gives `stage()`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from bert.checkpoints.files import weights_folder
from bert.config.architecture import BertConfig
from bert.config.base import (
    AnyConfig,
    BatchSettings,
    OptimizerSettings,
    RunSettings,
    Settings,
    TrainingConfig,
    check_vocabulary_file,
    derive,
)
from bert.conversion.locating import is_there

SIZES_FILES = ("bert_config.json", "config.json", "model_config.json")  # beside the weights, by who wrote them
VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer_config.json"  # as Hugging Face calls it


class TaskDataSettings(Settings):
    """What the text of every task needs; tasks add their files."""

    group: ClassVar[str] = "data"

    vocab_file: Path = Field(description="WordPiece vocabulary; without this flag, the one beside the weights")
    do_lower_case: bool = Field(True, description="lower-case and strip accents, as uncased vocabularies need")
    max_seq_length: int = Field(128, ge=8, description="longest sequence, in tokens with [CLS] and [SEP]")
    sequence_length_multiple: int = Field(
        8, ge=1, description="a batch is padded to its longest sequence, rounded up to this multiple"
    )
    cache_dir: Path | None = Field(
        Path("./results/features"), description="tokenised sets are kept here for the next run; none: nowhere"
    )
    num_workers: int = Field(1, ge=0, description="background threads that make batches on each rank; 0: none")


class FineTuningBatchSettings(BatchSettings):
    predict_batch_size: int = Field(32, ge=1, description="sequences per pass on one rank in evaluation and prediction")


class FineTuningOptimizerSettings(OptimizerSettings):
    optimizer: Literal["Lamb", "AdamW"] = Field("AdamW", description="AdamW, or LAMB (You et al., 2020)")
    learning_rate: float = Field(5e-5, gt=0, description="peak learning rate, reached at the end of warm-up")
    warmup_proportion: float = Field(0.1, ge=0, lt=1, description="share of the updates spent warming up")


class FineTuningRunSettings(RunSettings):
    epochs: float = Field(2.0, gt=0, description="passes over the training set, unless --max-steps is given")
    max_steps: int = Field(-1, ge=-1, description="updates of the whole run; -1: as many as --epochs need")
    eval_freq: int = Field(0, ge=0, description="updates between evaluations; 0: after each epoch")
    do_train: bool = Field(False, description="train")
    do_eval: bool = Field(False, description="score the labelled evaluation set, in training too")
    do_predict: bool = Field(False, description="write predictions")
    loss_spike_factor: float = Field(  # losses near 0 jump by themselves
        0.0,
        ge=0,
        description="tell when the loss of a log interval is so many times the median of the 20 before; 0: off",
    )
    keep_best: bool = Field(True, description="keep the weights of the best evaluation, and end with them")

    @model_validator(mode="after")
    def _something_to_do(self) -> "FineTuningRunSettings":
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "nothing to do: one of do_train, do_eval and do_predict must be true; pass --do-train, "
                "--do-eval or --do-predict"
            )
        if self.max_steps == 0:
            raise ValueError(
                "max_steps=0 must be at least 1, or -1 to train for --epochs; to train nothing, leave --do-train out"
            )
        return self


class FineTuningConfig(TrainingConfig):
    """Common to all fine-tuning tasks."""

    data: TaskDataSettings
    batch: FineTuningBatchSettings = Field(default_factory=FineTuningBatchSettings)
    optimizer: FineTuningOptimizerSettings = Field(default_factory=FineTuningOptimizerSettings)
    run: FineTuningRunSettings

    @model_validator(mode="after")
    def _fits_the_model(self) -> "FineTuningConfig":
        if self.data.max_seq_length > self.model.max_position_embeddings:
            raise ValueError(
                f"max_seq_length={self.data.max_seq_length} must be at most max_position_embeddings="
                f"{self.model.max_position_embeddings} of the model; lower --max-seq-length"
            )
        return self

    def vocabulary_file(self) -> Path:
        return self.data.vocab_file

    def check_files(self) -> None:
        """Refuse what is missing before anything slow is started; tasks add their own files."""
        check_vocabulary_file(self.data.vocab_file, self.model)
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Other sizes than the weights have are seen before a network of them is built."""
        source = self.initialization.from_pretrained_params
        file = None if source is None else _description(weights_folder(source))
        if file is None:
            return
        there = BertConfig.from_json_file(file)
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            needed, given = getattr(there, name), getattr(self.model, name)
            if given != needed:
                raise ValueError(
                    f"{name}={given} (bert_model={self.run.bert_model}) must be {needed}, as {file} says; "
                    "name no model (a recipe without one, and no --bert-model), and the sizes are taken from there"
                )

    def best_dir(self) -> Path:
        """Parent of the STEP folder with the weights of the best evaluation."""
        return self.checkpoint_dir().with_name(f"{self.stage()}-best")


def with_steps(config: AnyConfig, num_samples: int, world_size: int) -> AnyConfig:
    """The settings with max_steps and eval_freq made definite for a training set of `num_samples`."""
    global_batch_size = config.batch.resolved_global_batch_size(world_size)
    steps_per_epoch = -(-num_samples // global_batch_size)
    max_steps = config.run.max_steps
    if max_steps == -1:
        max_steps = max(1, -(-round(config.run.epochs * num_samples) // global_batch_size))  # type: ignore[attr-defined]
    return derive(config, max_steps=max_steps, eval_freq=config.run.eval_freq or steps_per_epoch)


def implied_by_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """Model sizes and vocabulary found beside the weights that the settings name, for what they leave open.

    Raises:
        ValueError: weights that do not exist, or a description of a model that cannot be built.
    """
    source = values.get("from_pretrained_params") or values.get("from_checkpoint")
    if source in (None, "None", "none", ""):
        return {}
    path = weights_folder(Path(str(source)).expanduser())
    if source == values.get("from_pretrained_params") and "vocab_file" not in values and not is_there(path):
        raise ValueError(f"from_pretrained_params={source} does not exist; pass a folder or a file of weights")
    folder = _folder_of(path)
    found: dict[str, Any] = {}
    sizes = _description(path)
    if sizes is not None and "hidden_size" not in values:
        found |= BertConfig.from_json_file(sizes).model_dump()
        # A model of its own sizes is not called by the default's name.
        found |= {} if "bert_model" in values else {"bert_model": _name_of(folder)}
    if (folder / VOCABULARY_FILE).is_file():
        found["vocab_file"] = folder / VOCABULARY_FILE
    return found | _lower_case(folder, Path(values.get("vocab_file") or folder / VOCABULARY_FILE))


def _folder_of(path: Path) -> Path:
    return path.parent if path.is_file() or not path.exists() else path


def _description(path: Path) -> Path | None:
    """The file that lies beside weights and has the sizes of their model."""
    files = (_folder_of(path) / name for name in SIZES_FILES)
    return next((file for file in files if file.is_file()), None)


def _name_of(folder: Path) -> str:
    """OUTPUT/MODEL/STAGE/STEP -> MODEL; else the folder's own name, of the letters a name may have."""
    name = folder.parts[-3] if folder.name.isdecimal() and len(folder.parts) >= 3 else folder.resolve().name
    kept = "".join(letter if letter.isalnum() and letter.isascii() or letter in "._-" else "-" for letter in name)
    return kept.lstrip("._-") or "bert"


def _lower_case(folder: Path, vocab_file: Path) -> dict[str, Any]:
    """Whether the tokenizer that lies beside the weights lower-cases; where nothing says it, the vocabulary does."""
    try:
        value = json.loads((folder / TOKENIZER_FILE).read_text(encoding="utf-8")).get("do_lower_case")
    except (OSError, ValueError, AttributeError):
        value = None
    if value is None and _has_capitals(vocab_file):
        value = False
    return {"do_lower_case": value} if isinstance(value, bool) else {}


def _has_capitals(vocab_file: Path) -> bool:
    """Whether a word of the vocabulary, besides [CLS] and its like, could never be met in lower-cased text."""
    try:
        lines = vocab_file.expanduser().read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return False  # checked, and told of, elsewhere
    return any("A" <= letter <= "Z" for line in lines if not line.startswith("[") for letter in line)


def tokenizer_settings(data: TaskDataSettings) -> dict[str, str]:
    """The file to keep beside fine-tuned weights, name -> content, so that they are used on text read the same way."""
    return {TOKENIZER_FILE: json.dumps({"do_lower_case": data.do_lower_case}) + "\n"}
