"""Settings of a fine-tuning run: the settings of every training, plus epochs, modes and other defaults.

A task subclasses `FineTuningConfig` with a `data` section that subclasses `TaskDataSettings`, and defines `stage()`.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from bert.checkpoints.chosen_weights import weights_folder
from bert.config.batch_settings import BatchSettings
from bert.config.flags import Flag, flag_name
from bert.config.optimizer_settings import OptimizerSettings
from bert.config.plain_yaml import read_yaml
from bert.config.settings_base import MayDiffer, MayGrow, ReadWith
from bert.config.training_settings import BUILT_IN_MODELS, AnyConfig, RunSettings, TrainingConfig, derive
from bert.conversion.locating import resolve
from bert.files import unset_variable
from bert.finetuning.model_files import description_beside, description_file, implied_by_weights, named_weights
from bert.finetuning.normalization_settings import NormalizationSettings
from bert.tokenization.vocabulary_files import check_vocabulary_file
from data.download_vocabulary import provide_vocabulary
from data.text.encodings import Decoding


class TaskDataSettings(NormalizationSettings):
    """Settings of tokenisation and batches. Tasks add their files."""

    vocab_file: MayDiffer[Path] = Field(
        description="vocabulary: a WordPiece's vocab.txt, or any tokenizer.json; by default the one beside the weights"
    )
    max_seq_length: int = Field(
        128,
        ge=8,
        description="longest sequence, in tokens with [CLS] and [SEP]; without --do-train as the weights were trained",
    )
    encoding: MayDiffer[str | None] = Field(
        None,
        description="encoding of the files, such as cp1250; auto:cp1250: of files that are not UTF-8 (default: "
        "detected, as "
        "in the training)",
    )
    language: Annotated[MayDiffer[str | None], Flag(hidden_aliases=("--lang",))] = Field(
        None, description="language of the text, such as pl, which decides between code pages (default: inferred)"
    )
    sequence_length_multiple: MayDiffer[int] = Field(
        8, ge=1, description="a batch is padded to its longest sequence, rounded up to this multiple"
    )
    num_workers: MayDiffer[int] = Field(
        1, ge=0, description="background threads that make batches on each rank; 0: none"
    )

    @model_validator(mode="after")
    def _can_decode(self) -> "TaskDataSettings":
        Decoding.of(self)
        return self


class FineTuningBatchSettings(BatchSettings):
    predict_batch_size: Annotated[int, ReadWith("do_eval", "do_predict")] = Field(
        32, ge=1, description="sequences per batch on one rank, evaluation and prediction"
    )


class FineTuningOptimizerSettings(OptimizerSettings):
    optimizer: Literal["Lamb", "AdamW"] = Field("AdamW", description="AdamW, or LAMB (You et al., 2020)")
    learning_rate: float = Field(5e-5, gt=0, description="peak learning rate, reached at the end of warm-up")
    warmup_proportion: float = Field(0.1, ge=0, lt=1, description="share of the updates spent warming up")


class FineTuningRunSettings(RunSettings):
    epochs: Annotated[MayGrow[float], ReadWith("max_steps", values=(-1,))] = Field(
        2.0, gt=0, description="epochs over the training set, unless --max-steps is given"
    )
    max_steps: MayGrow[int] = Field(-1, ge=-1, description="updates of the whole run; -1: as many as --epochs need")
    eval_freq: Annotated[MayDiffer[int], ReadWith("do_eval"), Flag(group="evaluation")] = Field(
        0, ge=0, description="updates between evaluations; 0: after each epoch"
    )
    do_train: MayDiffer[bool] = Field(False, description="train")
    do_eval: MayDiffer[bool] = Field(False, description="score the evaluation set, during training and at its end")
    do_predict: MayDiffer[bool] = Field(False, description="write predictions")
    loss_spike_factor: Annotated[MayDiffer[float], Flag(group="guards")] = (
        Field(  # off: small losses fluctuate by large factors
            0.0, ge=0, description="warn when an interval's loss exceeds this multiple of the last 20's median; 0: off"
        )
    )
    keep_best: Annotated[bool, ReadWith("do_eval"), Flag(group="evaluation")] = Field(
        True, description="keep the checkpoint of the best evaluation, and use its weights at the end"
    )

    def length_is_of_the_data(self) -> bool:
        return True

    @model_validator(mode="after")
    def _something_to_do(self) -> "FineTuningRunSettings":
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "nothing to do: one of do_train, do_eval and do_predict must be true; pass --do-train, "
                "--do-eval or --do-predict"
            )
        if self.max_steps == 0:
            raise ValueError(
                "max_steps=0 must be at least 1, or -1 to train for --epochs; to skip training, omit --do-train"
            )
        return self


class FineTuningConfig(TrainingConfig):
    """The settings that all fine-tuning tasks share."""

    example_words: ClassVar[tuple[str, ...]] = ()  # arguments of run_predict.py after the model

    data: TaskDataSettings
    batch: MayDiffer[FineTuningBatchSettings] = Field(default_factory=FineTuningBatchSettings)
    optimizer: FineTuningOptimizerSettings = Field(default_factory=FineTuningOptimizerSettings)
    run: FineTuningRunSettings

    @model_validator(mode="after")
    def _fits_the_model(self) -> "FineTuningConfig":
        self._check_length(self.data.max_seq_length)
        return self

    def vocabulary_file(self) -> Path:
        return self.data.vocab_file

    def trains(self) -> bool:
        return self.run.do_train

    def decides_also(self) -> Collection[str]:
        return ("classifier_pooling",)

    def keeps_best(self) -> bool:
        return self.run.keep_best

    def prepare_files(self) -> None:
        """Find or fetch vocabulary and data, check all files, then fetch the weights of a published model."""
        provide_vocabulary(self.data.vocab_file)
        self.fetch_data()
        self.check_files()
        if self.initialization.from_pretrained_params is not None:
            resolve(self.initialization.from_pretrained_params)

    def fetches_data(self) -> bool:
        """Whether `fetch_data` may fetch files, so that they may be missing before."""
        return False

    def fetch_data(self) -> None:
        """Fetch missing files of a published data set, if requested. Tasks with such a set define it."""

    def needed_files(self) -> dict[str, str]:
        """Names of settings with files or folders to read, and the mode that needs each."""
        modes = {"train_file": "do_train", "eval_file": "do_eval", "predict_file": "do_predict"}
        return {name: mode for name, mode in modes.items() if getattr(self.run, mode)}

    def training_data(self) -> Path | None:
        names = (name for name, mode in self.needed_files().items() if mode == "do_train")
        return next((getattr(self.data, name) for name in names), None)

    def fetching(self) -> str:
        """The remedy for missing data of a published data set."""
        return ""

    def check_files(self) -> None:
        """Raise ValueError for files that are missing or do not fit, before anything slow starts."""
        for name, mode in self.needed_files().items():
            path: Path | None = getattr(self.data, name)
            if path is None:
                raise ValueError(f"{mode}=true needs {name}; pass {flag_name(name)}{self.fetching()}")
            is_folder = name.endswith("_dir")
            if not (path.is_dir() if is_folder else path.is_file()):
                raise ValueError(
                    f"{name}={path} must be an existing {'folder' if is_folder else 'file'}; check {flag_name(name)}"
                    f"{self.fetching()}{unset_variable(path)}"
                )
        start = self.initialization
        if not (start.from_checkpoint or start.initial_weights() or self.data.vocab_file.is_file()):
            raise ValueError(
                f"no weights were given, and vocab_file={self.data.vocab_file} does not exist; pass "
                "--from-pretrained-params, the model to start from, whose vocabulary is used too"
            )
        check_vocabulary_file(self.data.vocab_file, self.model)
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Compare the model's sizes with the description beside the weights."""
        source = self.initialization.from_pretrained_params
        path = None if source is None else weights_folder(resolve(source, weights=False))
        if path is None or (description := description_beside(path)) is None:
            return
        weights = description.config
        for name in ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            value, needed = getattr(self.model, name), getattr(weights, name)
            if value != needed:
                file = description_file(path)
                raise ValueError(
                    f"{name}={value} (bert_model={self.run.bert_model}) must be {needed}, as {file} says; omit "
                    "--bert-model (and choose a recipe that names no model) to use the sizes of the weights"
                )


def modes_of_files(values: Mapping[str, Any], held_out: bool = False) -> dict[str, bool]:
    """Enable training, evaluation and prediction by the files that are named, if no setting chooses them.

    Args:
        held_out: a file to train on is enough for an evaluation.
    """
    if values.keys() & {"do_train", "do_eval", "do_predict"}:
        return {}
    files = ("train_file", "eval_file", "predict_file")
    trains, evaluates, predicts = (str(values.get(name)) not in ("None", "none", "") for name in files)
    modes = {"do_train": trains, "do_eval": evaluates or (trains and held_out), "do_predict": predicts}
    return modes if any(modes.values()) else {}


USUAL_SETTINGS = ("batch_size", "epochs", "learning_rate", "max_seq_length")


def settings_of_the_run(
    values: Mapping[str, Any], stage: str, names: Collection[str] = USUAL_SETTINGS
) -> dict[str, Any]:
    """Settings of the run in the output folder, which a resumed run keeps; empty without one."""
    file = Path(str(values.get("output_dir", RunSettings.model_fields["output_dir"].default))).expanduser()
    before = read_yaml(file / f"{stage}.yaml") if (file / f"{stage}.yaml").is_file() else {}
    return {name: before[name] for name in names if name in before}


_SMALL = 256  # units of a model that wants other rates than published ones


def is_small_modern(values: Mapping[str, Any]) -> bool:
    """Whether flat settings describe a small model as this project trains it on the user's text."""
    return values.get("model_type") == "modernbert" and int(values["hidden_size"]) <= _SMALL


def usual_settings(rows: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Default batch, epochs, rate and length, by the number of the user's samples and the size of the model.

    The published rates are 2e-5 to 5e-5 for 768 and 1,024 units; recipes of this project have 5e-5 for 384 units and
    5e-4 for 128. Small sets get the epochs that about 300 updates need (small models twice as many), at least 3.
    """
    hidden_size, positions = (int(values.get(name, 768)) for name in ("hidden_size", "max_position_embeddings"))
    batch_size = 16 if rows < 2_000 else 32
    updates = 300 if hidden_size >= 512 else 600
    return {
        "batch_size": batch_size,
        "epochs": float(min(20, max(3, -(-updates * batch_size // max(rows, 1))))),
        "learning_rate": float(f"{3e-5 * (768 / hidden_size) ** 1.5:.1g}"),
        "max_seq_length": min(128, positions),
    }


def implied_settings(values: Mapping[str, Any], default_model: str = "bert-base-uncased") -> dict[str, Any]:
    """Settings that follow from others, such as sizes and vocabulary from the weights or a built-in model."""
    implied = implied_by_weights(values)
    name = str(values.get("bert_model") or ("" if named_weights(values) else default_model))
    if name in BUILT_IN_MODELS:
        implied.setdefault("vocab_file", Path(f"$BERT_PREP_WORKING_DIR/vocab/{name}-vocab.txt"))
    if name.endswith("-cased"):
        implied.setdefault("do_lower_case", False)
    return implied


def with_global_batch(config: AnyConfig, world_size: int) -> AnyConfig:
    """Keep the global batch on any number of ranks, with the largest allowed micro-batches that divide it."""
    total = config.batch.global_batch_size
    if total is None or total % world_size or total % (config.batch.batch_size * world_size) == 0:
        return config
    share = total // world_size
    largest = max(size for size in range(1, min(share, config.batch.batch_size) + 1) if share % size == 0)
    return derive(config, batch_size=largest)


def with_steps(config: AnyConfig, num_samples: int, world_size: int) -> AnyConfig:
    """Compute max_steps and eval_freq from the epochs, for a training set of `num_samples`."""
    global_batch_size = config.batch.resolved_global_batch_size(world_size)
    steps_per_epoch = -(-num_samples // global_batch_size)
    max_steps = config.run.max_steps
    if max_steps == -1:
        max_steps = max(1, -(-round(config.run.epochs * num_samples) // global_batch_size))  # type: ignore[attr-defined]
    return derive(config, max_steps=max_steps, eval_freq=config.run.eval_freq or steps_per_epoch)
