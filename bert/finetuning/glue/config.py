"""The settings of run_glue.py: a task of GLUE or the user's own, and its files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from bert import REPOSITORY
from bert.config.command_line import EntryPoint
from bert.config.flags import is_on
from bert.files import unset_variable
from bert.finetuning.config import FineTuningConfig, TaskDataSettings, implied_settings, modes_of_files
from bert.finetuning.glue.columns import survey, usual_settings
from bert.finetuning.glue.reading import MAX_BAD_LINE_FRACTION
from bert.finetuning.glue.task_table import TASK_NAMES, TASKS, GlueTask, custom_task, find_task, task_name
from bert.finetuning.inquiries import inquiries
from bert.finetuning.model_files import usage_in_training
from data.download_glue import download_task
from data.fetching.transfer import data_folder, mirrors

_EXAMPLES = REPOSITORY / "data" / "examples"
Settings = dict[str, Any]


def paper() -> Settings:
    """Devlin et al. (2019), section 4.1 and appendix A.3: batches of 32, 3 epochs, AdamW, 10% warm-up.

    They chose the best of the learning rates 5e-5, 4e-5, 3e-5 and 2e-5 on the dev set; 2e-5 suits all tasks.
    """
    return {
        "max_seq_length": 128,
        "global_batch_size": 32,
        "batch_size": 32,
        "epochs": 3.0,
        "learning_rate": 2e-5,
        "do_train": True,
        "do_eval": True,
    }


def small_task(name: str) -> Settings:
    """CoLA, MRPC, STS-B, RTE and WNLI, which have fewer than 10,000 examples: 5 epochs, the best one is kept."""
    return {**paper(), "task_name": name, "epochs": 5.0}


def large_task(name: str) -> Settings:
    """SST-2, QNLI, QQP and MNLI: 3 epochs and less frequent checkpoints."""
    return {**paper(), "task_name": name, "num_steps_per_checkpoint": 1000}


def bert_large(plain: Callable[[], Settings]) -> Settings:
    """BERT-large on 8 GPUs by the defaults of NVIDIA's PyTorch run_glue.sh: 16 sequences a GPU, 2.4e-5, 3 epochs.

    CoLA and MNLI are trained by them there; STS-B, QQP, QNLI, RTE and WNLI, which that script lacks, only here.
    """
    return {**plain(), "global_batch_size": 128, "batch_size": 16, "learning_rate": 2.4e-5, "epochs": 3.0, "amp": True}


def mrpc_large(plain: Callable[[], Settings]) -> Settings:
    """NVIDIA's glue_config.sh for MRPC: as `bert_large`, but 1.8e-5 and 30% warm-up."""
    return {**bert_large(plain), "learning_rate": 1.8e-5, "warmup_proportion": 0.3}


def sst_2_large(plain: Callable[[], Settings]) -> Settings:
    """NVIDIA's glue_config.sh for SST-2: 128 sequences a GPU, 1,024 an update, 1e-5."""
    return {**bert_large(plain), "global_batch_size": 1024, "batch_size": 128, "learning_rate": 1e-5}


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


_LARGE_TASKS = ("SST-2", "QQP", "MNLI", "QNLI")
_PLAIN: dict[str, Callable[[], Settings]] = {
    name.lower(): partial(large_task if name in _LARGE_TASKS else small_task, name)
    for name, task in TASKS.items()
    if task.train is not None
}
_LARGE = {"mrpc": mrpc_large, "sst-2": sst_2_large}  # task -> the recipe that differs from `bert_large`
GLUE_RECIPES: dict[str, Callable[[], Settings]] = {
    **_PLAIN,
    **{f"{name}_large": partial(_LARGE.get(name, bert_large), plain) for name, plain in _PLAIN.items()},
    **{recipe.__name__: recipe for recipe in (small_pairs, small_sentiment, quickstart_pairs, quickstart_sentiment)},
}


OWN_FILES = ("train_file", "eval_file", "predict_file")  # of task_name=custom
_OWN = (*OWN_FILES, "regression", "label_separator", "positive_label", "wanted_recall", "balance", "group_column")


class GlueDataSettings(TaskDataSettings):
    task_name: str = Field(description=f"{', '.join(TASKS)}; or custom, for your own files, which imply it")
    data_dir: Path | None = Field(None, description="folder of a GLUE task's files, train.tsv, dev.tsv ...")
    download: bool = Field(
        False,
        description="fetch a GLUE task's files if they are not in --data-dir; without that flag, to "
        "$BERT_PREP_WORKING_DIR/download/glue/TASK or the cache",
    )
    train_file: Path | None = Field(None, description="custom: .csv, .tsv, .jsonl or .parquet to train on")
    eval_file: Path | None = Field(
        None, description="custom: labelled file to evaluate on; without one, a part of --train-file is held out"
    )
    predict_file: Path | None = Field(None, description="custom: file to predict, with or without labels")
    text_column: str = Field("sentence", description="custom: column, or key, of the text; inferred if not named")
    text_pair_column: str | None = Field(None, description="custom: column of the second text; none: single texts")
    label_column: str = Field("label", description="custom: column of the label; inferred if not named")
    index_column: str | None = Field(None, description="custom: column that identifies predictions; none: 0, 1, 2 ...")
    regression: bool = Field(
        False, description="custom: the label is a number (regression); inferred from fractions and many integers"
    )
    label_separator: str | None = Field(
        None, min_length=1, description="custom: a text may have several labels, with this between them"
    )
    positive_label: str | None = Field(
        None, description="custom: the class that F1 is of, if there are two; none: the second in order"
    )
    wanted_recall: float | None = Field(
        None,
        gt=0,
        le=1,
        description="custom: predict --positive-label from the probability that gives it this recall when evaluated",
    )
    best_by: str = Field(
        "score", description="custom: what the best weights are best by: a metric, or f1:CLASS, auc:CLASS ..."
    )
    balance: bool = Field(False, description="custom: train on rare classes as often as on the largest")
    folds: int = Field(
        5, ge=2, description="custom: parts of --train-file, of which one is held out if there is no --eval-file"
    )
    fold: int = Field(0, ge=0, description="custom: the part that is held out, from 0")
    group_column: str | None = Field(
        None, description="custom: rows of equal value here (a patient, an author) are held out together"
    )
    max_bad_line_fraction: float = Field(
        MAX_BAD_LINE_FRACTION,
        ge=0,
        lt=1,
        description="fraction of the lines of a training or evaluation file that may be skipped as unreadable",
    )

    @field_validator("task_name")
    @classmethod
    def _known(cls, name: str) -> str:
        return task_name(name)

    @model_validator(mode="after")
    def _files_of_the_task(self) -> "GlueDataSettings":
        is_custom = self.task_name == "custom"
        for name in ("data_dir", "download") if is_custom else _OWN:
            if value := getattr(self, name):
                kind = "GLUE's tasks; for task_name=custom, pass --train-file, --eval-file and --predict-file"
                if not is_custom:
                    kind = f"task_name=custom; {self.task_name} reads the files of --data-dir, and says what they hold"
                raise ValueError(f"{name}={'true' if value is True else value} is for {kind}")
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


class GlueConfig(FineTuningConfig):
    """One task of GLUE, or one of the user's own."""

    data: GlueDataSettings

    @model_validator(mode="after")
    def _is_trainable(self) -> "GlueConfig":
        if self.run.do_train and (task := self.task()).train is None:
            raise ValueError(
                f"task_name={task.name} has nothing to train on: train {task.model_of}, and pass its "
                "folder with --from-pretrained-params and --do-predict"
            )
        return self

    def stage(self) -> str:
        return f"glue-{self.data.task_name.lower()}"

    def task(self) -> GlueTask:
        data = self.data
        if data.task_name != "custom":
            return find_task(data.task_name)
        return custom_task(
            text=data.text_column,
            text_pair=data.text_pair_column,
            label=data.label_column,
            index=data.index_column,
            group=data.group_column,
            regression=data.regression,
            separator=data.label_separator,
        )

    def holds_out(self) -> bool:
        """Whether a part of the training file is evaluated."""
        return self.run.do_train and self.run.do_eval and self.data.train_file is not None and not self.data.eval_file

    def fetch_data(self) -> None:
        data = self.data
        if data.download and data.data_dir is not None and not unset_variable(data.data_dir):
            download_task(data.task_name, data.data_dir, mirrors())

    def needed_files(self) -> dict[str, str]:
        files = super().needed_files()
        if self.holds_out():
            del files["eval_file"]
        return files if self.data.task_name == "custom" else dict.fromkeys(["data_dir"], next(iter(files.values())))

    def fetching(self) -> str:
        return "" if self.data.task_name == "custom" else ", or pass --download to fetch the task's files"


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by the weights, the task of the user's own files, and where --download keeps those of GLUE."""
    modes = modes_of_files(values, held_out=True)
    values = {**modes, **values}
    implied = modes | implied_settings(values) | _left_by_training(values)
    if values.keys() & set(OWN_FILES):
        implied["task_name"] = "custom"
        implied |= _inferred({**implied, **values})
    task = task_name(str(values.get("task_name", "custom")))
    if is_on(values, "download") and task != "custom":
        implied["data_dir"] = data_folder() / "glue" / task
    return implied


def _left_by_training(values: Mapping[str, Any]) -> dict[str, Any]:
    """The length, columns and kind of label that weights used without training were trained with."""
    usage = usage_in_training(values, *TASK_NAMES)
    left: dict[str, Any] = {} if usage.max_seq_length is None else {"max_seq_length": usage.max_seq_length}
    if str(values.get("task_name", "custom")).lower() == "custom":
        left["regression"] = usage.regression
        if usage.name in (None, "custom"):  # another library's model may have several labels
            left |= zip(("text_column", "text_pair_column"), usage.text_columns, strict=False)
            names = ("label_column", "label_separator")
            left |= {name: value for name in names if (value := getattr(usage, name)) is not None}
    return left


_OF_ROWS = {"regression", "batch_size", "epochs", "learning_rate", "max_seq_length"}  # as inferred for a training


def _inferred(values: Mapping[str, Any]) -> Settings:
    """The columns of the user's file that no setting names; for a training also the kind of label and the rate."""
    trains = is_on(values, "do_train")
    file = Path(str(values.get("train_file" if trains else "eval_file"))).expanduser()
    names = ("text_column", "text_pair_column", "label_column")
    if str(values.get("task_name", "custom")).lower() != "custom" or not file.is_file():
        return {}
    if values.keys() >= ({"text_column", "label_column"} | (_OF_ROWS if trains else set())):
        return {}
    shown = survey(file, {name: values.get(name) for name in names})
    if not trains:
        return dict(shown.columns)
    regression = {} if values.get("label_separator") else {"regression": shown.regression}
    size, positions = (int(values.get(name, 768)) for name in ("hidden_size", "max_position_embeddings"))
    return {**shown.columns, **regression, **usual_settings(shown.rows, size), "max_seq_length": min(128, positions)}


_TASK = "bert.finetuning.glue.task:SentenceTask"
ENTRY = EntryPoint(
    script="run_glue.py",
    config_class=GlueConfig,
    task=_TASK,
    recipes=GLUE_RECIPES,
    inquiries=inquiries(_TASK),
    aliases={
        "train_file": ("--train",),
        "eval_file": ("--eval",),
        "predict_file": ("--predict",),
        "from_pretrained_params": ("--model",),
    },
    implied=_implied,
    usage="(--config RECIPE | --task-name TASK) [--data-dir DIR | --download] --from-pretrained-params WEIGHTS "
    "--do-train --do-eval",
    description="Fine-tune BERT to classify or rate sentences and pairs of sentences.",
)
