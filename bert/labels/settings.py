"""The settings of labelled texts of one's own: their files and columns, and what is inferred from the rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from bert import REPOSITORY
from bert.config.flags import is_on
from bert.config.settings_base import MayDiffer, OwnFilesOnly, ReadWith
from bert.conversion.usage import Usage
from bert.finetuning.config import (
    SMALL,
    USUAL_SETTINGS,
    FineTuningConfig,
    TaskDataSettings,
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
OWN_FILES = ("train_file", "eval_file", "predict_file")  # of task_name=custom


class LabelDataSettings(TaskDataSettings):
    train_file: OwnFilesOnly[Path | None] = Field(
        None, description="custom: .csv, .tsv, .jsonl or .parquet to train on"
    )
    eval_file: OwnFilesOnly[Path | None] = Field(
        None, description="custom: labelled file to evaluate on; without one, a part of --train-file is held out"
    )
    predict_file: OwnFilesOnly[MayDiffer[Path | None]] = Field(
        None, description="custom: file to predict, with or without labels"
    )
    text_column: OwnFilesOnly[str] = Field(
        "sentence",
        description="custom: column, or key, of the text, or several to join: subject+body; none: all columns of text",
    )
    text_pair_column: OwnFilesOnly[str | None] = Field(
        None, description="custom: column of the second text; none: single texts"
    )
    label_column: OwnFilesOnly[str] = Field("label", description="custom: column of the label; inferred if not named")
    index_column: OwnFilesOnly[MayDiffer[str | None]] = Field(
        None, description="custom: column that identifies predictions; none: 0, 1, 2 ..."
    )
    header: OwnFilesOnly[bool] = Field(
        True,
        description="custom: the first line of a CSV or TSV names the columns; without: 'column 1', 'column 2' ...",
    )
    regression: OwnFilesOnly[bool] = Field(
        False, description="custom: the label is a number (regression); inferred from fractions and many integers"
    )
    label_separator: OwnFilesOnly[str | None] = Field(
        None, min_length=1, description="custom: a text may have several labels, with this between them"
    )
    positive_label: OwnFilesOnly[str | None] = Field(None, description="custom: the class that --wanted-recall is of")
    wanted_recall: OwnFilesOnly[float | None] = Field(
        None,
        gt=0,
        le=1,
        description="custom: predict --positive-label from the probability that gives it at least this recall, with "
        "the fewest false alarms, when evaluated",
    )
    best_by: OwnFilesOnly[str] = Field(
        "score", description="custom: what the best weights are best by: a metric, or f1:CLASS, auc:CLASS ..."
    )
    token_weights: OwnFilesOnly[bool] = Field(
        True, description="custom: add a linear model of the tokens to the logits if it helps on the held-out lines"
    )
    keep_baseline: OwnFilesOnly[MayDiffer[bool]] = Field(
        False,
        description="custom: keep words alone or characters alone, whichever is better on the held-out lines, as a "
        "model: OUTPUT_DIR/glue-custom/baseline_model, for run_predict.py and the server",
    )
    balance: OwnFilesOnly[bool] = Field(False, description="custom: train on rare classes as often as on the largest")
    folds: Annotated[OwnFilesOnly[int], ReadWith("eval_file", values=(None,))] = Field(
        5, ge=2, description="custom: parts of --train-file, of which one is held out if there is no --eval-file"
    )
    fold: Annotated[OwnFilesOnly[int], ReadWith("eval_file", values=(None,))] = Field(
        0, ge=0, description="custom: the part that is held out, from 0"
    )
    group_column: OwnFilesOnly[str | None] = Field(
        None, description="custom: rows of equal value here (a patient, an author) are held out together"
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
    """A classification or rating of the user's own texts."""

    data: LabelDataSettings

    def stage(self) -> str:
        return "glue-custom"  # as runs before bert/labels are named

    def label_schema(self) -> LabelSchema:
        data = self.data
        texts = tuple(name for name in (data.text_column, data.text_pair_column) if name is not None)
        names = (data.label_column, data.index_column, data.group_column, data.label_separator)
        return own_schema(texts, *names, data.regression, Decoding.of(data))

    def file_of(self, part: str) -> Path:
        """The file of one of the schema's splits; the settings have checked that it is named."""
        file = self.data.train_file if part == "train" or (part == "dev" and self.holds_out()) else self.data.eval_file
        file = self.data.predict_file if part == "predictions" else file
        assert file is not None
        return file

    def holds_out(self) -> bool:
        """Whether a part of the training file is evaluated."""
        return self.run.do_train and self.run.do_eval and self.data.train_file is not None and not self.data.eval_file

    def needed_files(self) -> dict[str, str]:
        files = super().needed_files()
        if self.holds_out():
            del files["eval_file"]
        return files


_OF_A_TRAINING = {"regression", "embedding_rate_factor", *USUAL_SETTINGS}


def inferred(values: Mapping[str, Any]) -> Settings:
    """The columns of the user's file that no setting names; for a training also the kind of label and the rate."""
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
    """What was measured to suit the small models of own text: tests/research/finetuning.md.

    Few lines say of which class a word is, and few updates of a low rate leave rare words where they were; dropout
    keeps the layers from learning lines by heart. Models from before they pooled means are trained as they were.
    """
    is_modern = (values.get("model_type"), values.get("classifier_pooling")) == ("modernbert", "mean")
    if not is_modern or int(values["hidden_size"]) > SMALL:
        return {}
    return {"embedding_rate_factor": 10.0, "hidden_dropout_prob": 0.1}


def left_by_training(usage: Usage) -> Settings:
    """The columns and kind of label that weights used without training were trained with."""
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
