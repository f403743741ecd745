"""Settings of a user's labelled texts: files and columns, and settings that are inferred from the rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from bert import REPOSITORY
from bert.config.flags import Flag, is_on
from bert.config.settings_base import MayDiffer, OwnFilesOnly, ReadWith
from bert.conversion.usage import Usage
from bert.finetuning.config import (
    USUAL_SETTINGS,
    FineTuningConfig,
    TaskDataSettings,
    is_small_modern,
    settings_of_the_run,
    usual_settings,
)
from bert.finetuning.text_files import decoding_of
from bert.labels.columns import survey
from bert.labels.examples import MAX_BAD_LINE_FRACTION
from bert.labels.schema import LabelSchema, own_schema
from data.text.encodings import Decoding

_EXAMPLES = REPOSITORY / "data" / "examples"
Settings = dict[str, Any]
OWN_FILES = ("train_file", "eval_file", "predict_file")  # settings of files with task_name=custom


class LabelDataSettings(TaskDataSettings):
    train_file: Annotated[OwnFilesOnly[Path | None], Flag(group="table")] = Field(
        None, description=".csv, .tsv, .jsonl or .parquet to train on"
    )
    eval_file: Annotated[OwnFilesOnly[Path | None], Flag(group="table")] = Field(
        None, description="labelled file to evaluate on (default: a part of --train-file is held out)"
    )
    predict_file: Annotated[OwnFilesOnly[MayDiffer[Path | None]], Flag(group="table")] = Field(
        None, description="file to predict, with or without labels"
    )
    text_column: Annotated[OwnFilesOnly[str], Flag(group="table")] = Field(
        "sentence",
        description="column, or key, of the text, or several to join: subject+body; none: all columns of text",
    )
    text_pair_column: Annotated[OwnFilesOnly[str | None], Flag(group="table")] = Field(
        None, description="column of the second text (default: single texts)"
    )
    label_column: Annotated[OwnFilesOnly[str], Flag(group="table")] = Field(
        "label", description="column of the label; inferred if not named"
    )
    index_column: Annotated[OwnFilesOnly[MayDiffer[str | None]], Flag(group="table")] = Field(
        None, description="column that identifies predictions (default: numbers 0, 1, 2 ...)"
    )
    header: Annotated[OwnFilesOnly[bool], Flag(group="table")] = Field(
        True, description="the first line of a CSV or TSV names the columns; without: 'column 1', 'column 2' ..."
    )
    regression: Annotated[OwnFilesOnly[bool], Flag(group="table")] = Field(
        False, description="the label is a number (regression); inferred from fractions and many integers"
    )
    label_separator: Annotated[OwnFilesOnly[str | None], Flag(group="table")] = Field(
        None,
        min_length=1,
        description="character between the labels of a text that may have several (default: one label)",
    )
    positive_label: Annotated[OwnFilesOnly[str | None], Flag(group="labels")] = Field(
        None, description="class that must reach --wanted-recall"
    )
    wanted_recall: Annotated[OwnFilesOnly[float | None], Flag(group="labels")] = Field(
        None,
        gt=0,
        le=1,
        description="predict --positive-label from the probability that gives it at least this recall, with "
        "the fewest false alarms, when evaluated (default: off)",
    )
    best_by: Annotated[OwnFilesOnly[str], Flag(group="labels")] = Field(
        "score", description="metric that selects the best checkpoint, such as f1:CLASS or auc:CLASS"
    )
    token_weights: Annotated[OwnFilesOnly[bool], Flag(group="labels")] = Field(
        True, description="add a linear model of the tokens to the logits if it helps on the held-out lines"
    )
    keep_baseline: Annotated[OwnFilesOnly[MayDiffer[bool]], Flag(group="labels")] = Field(
        False,
        description="keep the better of the two bag-of-words baselines (words, characters) as a "
        "model: OUTPUT_DIR/glue-custom/baseline_model, for run_predict.py and the server",
    )
    balance: Annotated[OwnFilesOnly[bool], Flag(group="labels")] = Field(
        False, description="train on rare classes as often as on the largest"
    )
    folds: Annotated[OwnFilesOnly[int], ReadWith("eval_file", values=(None,)), Flag(group="labels")] = Field(
        5, ge=2, description="parts of --train-file, of which one is held out if there is no --eval-file"
    )
    fold: Annotated[OwnFilesOnly[int], ReadWith("eval_file", values=(None,)), Flag(group="labels")] = Field(
        0, ge=0, description="the part that is held out, from 0"
    )
    group_column: Annotated[OwnFilesOnly[str | None], Flag(group="labels")] = Field(
        None, description="column whose equal values (a patient, an author) are held out together (default: off)"
    )
    max_bad_line_fraction: float = Field(
        MAX_BAD_LINE_FRACTION,
        ge=0,
        lt=1,
        description="fraction of the lines of a training or evaluation file that may be skipped as unreadable",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> "LabelDataSettings":
        if self.fold >= self.folds:
            raise ValueError(f"fold={self.fold} must be below folds={self.folds}; change --fold")
        if self.regression and self.label_separator:
            raise ValueError("regression=true and label_separator contradict each other; omit one of them")
        if self.wanted_recall and (self.positive_label is None or self.label_separator):
            raise ValueError(
                f"wanted_recall={self.wanted_recall:g} needs positive_label, the one class that it is of, and single "
                "labels; pass --positive-label"
            )
        return self


class LabelConfig(FineTuningConfig):
    """All settings of a classification or regression on the user's texts."""

    data: LabelDataSettings

    def stage(self) -> str:
        return "glue-custom"  # the name that runs had before bert/labels existed

    def label_schema(self) -> LabelSchema:
        data = self.data
        texts = tuple(name for name in (data.text_column, data.text_pair_column) if name is not None)
        names = (data.label_column, data.index_column, data.group_column, data.label_separator)
        return own_schema(texts, *names, data.regression, Decoding.of(data))

    def file_of(self, part: str) -> Path:
        """The path of the file of a split, by the split's name; the settings have checked that there is one."""
        file = self.data.train_file if part == "train" or (part == "dev" and self.holds_out()) else self.data.eval_file
        file = self.data.predict_file if part == "predictions" else file
        assert file is not None
        return file

    def holds_out(self) -> bool:
        """Whether a part of the training file is held out and evaluated."""
        return self.run.do_train and self.run.do_eval and self.data.train_file is not None and not self.data.eval_file

    def needed_files(self) -> dict[str, str]:
        files = super().needed_files()
        if self.holds_out():
            del files["eval_file"]
        return files


_OF_A_TRAINING = {"regression", "embedding_rate_factor", *USUAL_SETTINGS}


def inferred(values: Mapping[str, Any]) -> Settings:
    """Infer columns that no setting names from the user's file; for a training also the kind of labels and the rate."""
    trains = is_on(values, "do_train")
    file = Path(str(values.get("train_file" if trains else "eval_file"))).expanduser()
    names = ("text_column", "text_pair_column", "label_column")
    if not file.is_file() or values.keys() >= ({"text_column", "label_column"} | (_OF_A_TRAINING if trains else set())):
        return {}
    before = settings_of_the_run(values, "glue-custom", (*names, "train_file"))
    if trains and Path(str(before.pop("train_file", ""))).expanduser().absolute() == file.absolute():
        values = {**before, **values}  # a run goes on with its columns, also one of a version that joined none
    others = [str(name) for key in ("index_column", "group_column") if (name := values.get(key)) is not None]
    shown = survey(file, {name: values.get(name) for name in names}, decoding_of(values), others)
    columns = shown.columns
    if not trains:
        return columns
    regression = {} if values.get("label_separator") else {"regression": shown.regression}
    if shown.label_separator and not is_on(values, "regression"):
        columns["label_separator"] = shown.label_separator
    return {**columns, **regression, **usual_settings(shown.rows, values), **_of_small_modern(values)}


def _of_small_modern(values: Mapping[str, Any]) -> Settings:
    """Settings for small models that were pre-trained on the user's text, as measured in tests/research/finetuning.md.

    The embeddings of rare words hardly move in few updates with a low rate, so they get a higher rate. Dropout keeps
    the layers from memorising lines. Older models, which do not pool means, are trained as before.
    """
    if values.get("classifier_pooling") != "mean" or not is_small_modern(values):
        return {}
    return {"embedding_rate_factor": 10.0, "hidden_dropout_prob": 0.1}


def left_by_training(usage: Usage) -> Settings:
    """The columns and the kind of labels of an earlier training, for a run that only uses its weights."""
    left: Settings = {"regression": usage.regression, "header": usage.header}
    if usage.name in (None, "custom"):  # another library's model may have several labels
        left |= zip(("text_column", "text_pair_column"), usage.text_columns, strict=False)
        names = ("label_column", "label_separator")
        left |= {name: value for name in names if (value := getattr(usage, name)) is not None}
    return left


def small_pairs() -> Settings:
    """Paraphrases: 496 sentence pairs written for this project, 176 held out; for a small published encoder.

    The number of epochs was chosen on a fold of the training pairs: accuracy does not rise after the fifth.
    """
    folder = _EXAMPLES / "paraphrases"
    return {
        "task_name": "custom",
        "train_file": folder / "train.tsv",
        "eval_file": folder / "held_out.tsv",
        "text_column": "sentence1",
        "text_pair_column": "sentence2",
        "max_seq_length": 64,
        "batch_size": 16,
        "global_batch_size": 16,
        "epochs": 6.0,
        "learning_rate": 5e-5,
        "log_freq": 10,
        "num_steps_per_checkpoint": 1000,
        "do_train": True,
        "do_eval": True,
    }


def small_sentiment() -> Settings:
    """Sentiment: 240 sentences written for this project, 100 held out; for a small published encoder."""
    folder = _EXAMPLES / "sentiment"
    return {
        **small_pairs(),
        "train_file": folder / "train.tsv",
        "eval_file": folder / "held_out.tsv",
        "text_column": "sentence",
        "text_pair_column": None,
    }


def quickstart_pairs() -> Settings:
    """`small_pairs` for the two-layer model of the pre-training quickstart: a higher learning rate, more epochs."""
    return {**small_pairs(), "epochs": 15.0, "learning_rate": 5e-4, "device": "cpu"}


def quickstart_sentiment() -> Settings:
    """`small_sentiment` for the two-layer model of the pre-training quickstart."""
    return {**small_sentiment(), "epochs": 15.0, "learning_rate": 5e-4, "device": "cpu"}


OWN_RECIPES: dict[str, Callable[[], Settings]] = {
    recipe.__name__: recipe for recipe in (small_pairs, small_sentiment, quickstart_pairs, quickstart_sentiment)
}
