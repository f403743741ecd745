"""Settings of run_glue.py: fine-tuning's, with a task and its files. No Paddle inside."""

import json
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from bert.config.command_line import EntryPoint
from bert.finetuning.config import FineTuningConfig, TaskDataSettings, implied_by_weights
from bert.finetuning.glue.reading import MAX_BAD_LINE_FRACTION
from bert.finetuning.glue.recipes import GLUE_RECIPES
from bert.finetuning.glue.tasks import TASKS, GlueTask, custom_task, find_task
from bert.planning.flags import PLAN

LABELS_FILE = "labels.json"  # beside the weights of a classifier: its classes, in order


class GlueDataSettings(TaskDataSettings):
    task_name: str = Field(description=f"{', '.join(TASKS)}; or custom, for files of your own")
    data_dir: Path | None = Field(None, description="folder of a GLUE task's files, train.tsv, dev.tsv ...")
    train_file: Path | None = Field(None, description="custom: .tsv, .csv or .jsonl to train on")
    eval_file: Path | None = Field(None, description="custom: labelled file to evaluate on")
    predict_file: Path | None = Field(None, description="custom: file to predict; it needs no labels")
    text_column: str = Field("sentence", description="custom: column, or key, of the text")
    text_pair_column: str | None = Field(None, description="custom: column of a second text; none: single texts")
    label_column: str = Field("label", description="custom: column of the label")
    index_column: str | None = Field(None, description="custom: column that names the predictions; none: numbers")
    regression: bool = Field(False, description="custom: the label is a number to be predicted")
    max_bad_line_fraction: float = Field(
        MAX_BAD_LINE_FRACTION,
        ge=0,
        lt=1,
        description="share of a training or evaluation file's lines that may be "
        "left out, and told, because they cannot be read",
    )

    @field_validator("task_name")
    @classmethod
    def _known(cls, name: str) -> str:
        return "custom" if name.lower() == "custom" else find_task(name).name

    @model_validator(mode="after")
    def _files_of_the_task(self) -> "GlueDataSettings":
        files = {name: getattr(self, name) for name in ("train_file", "eval_file", "predict_file")}
        if self.task_name == "custom":
            if self.data_dir is not None:
                raise ValueError(
                    f"data_dir={self.data_dir} is for GLUE's tasks; for task_name=custom, pass "
                    "--train-file, --eval-file and --predict-file"
                )
            return self
        if self.data_dir is None:
            raise ValueError(
                f"task_name={self.task_name} needs data_dir; pass --data-dir, the folder of its files "
                "(python -m data.download_glue gets them)"
            )
        if wrong := [name for name, value in files.items() if value is not None]:
            raise ValueError(
                f"{wrong[0]}={files[wrong[0]]} is for task_name=custom; {self.task_name} reads the files of --data-dir"
            )
        if self.regression:
            raise ValueError("regression=true is for task_name=custom; GLUE's tasks say themselves what they are")
        return self


class GlueConfig(FineTuningConfig):
    """One task of GLUE, or one of the user's own."""

    data: GlueDataSettings

    @model_validator(mode="after")
    def _files_for_what_is_done(self) -> "GlueConfig":
        data, run = self.data, self.run
        if data.task_name == "custom":
            for wanted, name in (
                (run.do_train, "train_file"),
                (run.do_eval, "eval_file"),
                (run.do_predict, "predict_file"),
            ):
                if wanted and getattr(data, name) is None:
                    action = {"train_file": "do_train", "eval_file": "do_eval", "predict_file": "do_predict"}[name]
                    raise ValueError(
                        f"{action}=true needs {name} when task_name=custom; pass --{name.replace('_', '-')}"
                    )
        elif run.do_train and (task := find_task(data.task_name)).train is None:
            raise ValueError(
                f"task_name={task.name} has nothing to train on: train {task.model_of}, and pass its "
                "folder with --from-pretrained-params and --do-predict"
            )
        return self

    def stage(self) -> str:
        return f"glue-{self.data.task_name.lower()}"

    def task(self, num_labels: int = 0) -> GlueTask:
        data = self.data
        if data.task_name != "custom":
            return find_task(data.task_name)
        return custom_task(
            text=data.text_column,
            text_pair=data.text_pair_column,
            label=data.label_column,
            index=data.index_column,
            regression=data.regression,
            num_labels=num_labels,
        )

    def check_files(self) -> None:
        super().check_files()
        data = self.data
        for name in ("data_dir", "train_file", "eval_file", "predict_file"):
            path = getattr(data, name)
            if path is not None and not (path.is_dir() if name == "data_dir" else path.is_file()):
                kind = "folder" if name == "data_dir" else "file"
                raise ValueError(f"{name}={path} must be an existing {kind}; check --{name.replace('_', '-')}")


def labels_beside(weights: Path) -> tuple[str, ...] | None:
    """The classes of the classifier whose weights lie in a folder, in order; None where nothing says them.

    Read from labels.json, which our checkpoints have, or from the names in a config.json.

    Raises:
        ValueError: labels.json is not a list of texts.
    """
    folder = weights if weights.is_dir() else weights.parent
    path = folder / LABELS_FILE
    if path.is_file():
        try:
            labels = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}); it must be a list of the classes, in order") from None
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"{path} must be a list of the classes, in order, not {str(labels)[:60]!r}")
        return tuple(labels)
    for name in ("config.json", "model_config.json"):
        try:
            names = json.loads((folder / name).read_text(encoding="utf-8"))["id2label"]
            found = tuple(names[str(index)] for index in range(len(names)))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not all(label.startswith("LABEL_") for label in found):
            return found
    return None


ENTRY = EntryPoint(
    script="run_glue.py",
    config_class=GlueConfig,
    recipes=GLUE_RECIPES,
    inquiries=(PLAN,),
    implied=implied_by_weights,
    usage="(--config RECIPE | --task-name TASK) [--data-dir DIR] --from-pretrained-params WEIGHTS --do-train --do-eval",
    description="Fine-tune BERT to classify or rate sentences and pairs of sentences.",
)
