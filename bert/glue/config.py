"""The settings of run_glue.py: a task of GLUE or the user's own, and its files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from bert.config.entry_point import EntryPoint, Rule
from bert.config.flags import is_on
from bert.config.settings_base import OWN_FILES_ONLY, MayDiffer
from bert.files import unset_variable
from bert.finetuning.config import implied_settings, modes_of_files
from bert.finetuning.inquiries import inquiries
from bert.finetuning.model_files import usage_in_training
from bert.finetuning.text_files import implied_decoding
from bert.glue.files import find_file
from bert.glue.task_table import TASK_NAMES, TASKS, find_task, task_name
from bert.labels.schema import LabelSchema
from bert.labels.settings import (
    OWN_FILES,
    OWN_RECIPES,
    LabelConfig,
    LabelDataSettings,
    Settings,
    inferred,
    left_by_training,
)
from data.download_glue import download_task
from data.fetching.places import data_folder, mirrors


def paper() -> Settings:
    """The fine-tuning of Devlin et al. (2019, section 4.1, appendix A.3): batches of 32, 3 epochs, AdamW, 10% warm-up.

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
    """Recipe of CoLA, MRPC, STS-B, RTE and WNLI (fewer than 10,000 examples): 5 epochs, keeps the best."""
    return {**paper(), "task_name": name, "epochs": 5.0}


def large_task(name: str) -> Settings:
    """Recipe of SST-2, QNLI, QQP and MNLI: 3 epochs and less frequent checkpoints."""
    return {**paper(), "task_name": name, "num_steps_per_checkpoint": 1000}


def bert_large(plain: Callable[[], Settings]) -> Settings:
    """BERT-large on 8 GPUs with the defaults of NVIDIA's PyTorch run_glue.sh: 16 sequences a GPU, 2.4e-5, 3 epochs.

    CoLA and MNLI are trained by them there; STS-B, QQP, QNLI, RTE and WNLI, which that script lacks, only here.
    """
    return {**plain(), "global_batch_size": 128, "batch_size": 16, "learning_rate": 2.4e-5, "epochs": 3.0, "amp": True}


def mrpc_large(plain: Callable[[], Settings]) -> Settings:
    """MRPC as in NVIDIA's glue_config.sh: `bert_large` with 1.8e-5 and 30% warm-up."""
    return {**bert_large(plain), "learning_rate": 1.8e-5, "warmup_proportion": 0.3}


def sst_2_large(plain: Callable[[], Settings]) -> Settings:
    """SST-2 as in NVIDIA's glue_config.sh: 128 sequences a GPU, 1,024 an update, 1e-5."""
    return {**bert_large(plain), "global_batch_size": 1024, "batch_size": 128, "learning_rate": 1e-5}


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
    **OWN_RECIPES,
}


class GlueDataSettings(LabelDataSettings):
    task_name: str = Field(description=f"{', '.join(TASKS)}; or custom, for your own files, which imply it")
    data_dir: Path | None = Field(None, description="folder of a GLUE task's files, train.tsv, dev.tsv ...")
    download: MayDiffer[bool] = Field(
        False,
        description="fetch a GLUE task's files if they are not in --data-dir; without that flag, to "
        "$BERT_PREP_WORKING_DIR/download/glue/TASK or the cache",
    )

    @field_validator("task_name")
    @classmethod
    def _known(cls, name: str) -> str:
        return task_name(name)

    @model_validator(mode="after")
    def _files_of_the_task(self) -> "GlueDataSettings":
        is_custom, fields = self.task_name == "custom", type(self).model_fields
        of_own = [name for name, field in fields.items() if OWN_FILES_ONLY in field.metadata]
        for name in ("data_dir", "download") if is_custom else (*of_own, "encoding", "language"):
            if (value := getattr(self, name)) != fields[name].default:
                kind = "GLUE's tasks; for task_name=custom, pass --train-file, --eval-file and --predict-file"
                if not is_custom:
                    kind = f"task_name=custom; {self.task_name} reads the files of --data-dir, and says what they hold"
                raise ValueError(f"{name}={str(value).lower() if isinstance(value, bool) else value} is for {kind}")
        return self


class GlueConfig(LabelConfig):
    """Settings of one task of GLUE, or of the user's own task."""

    data: GlueDataSettings

    @model_validator(mode="after")
    def _is_trainable(self) -> "GlueConfig":
        if self.run.do_train and (task := self.label_schema()).train is None:
            raise ValueError(
                f"task_name={task.name} has nothing to train on: train {task.model_of}, and pass its "
                "folder with --from-pretrained-params and --do-predict"
            )
        return self

    def stage(self) -> str:
        return f"glue-{self.data.task_name.lower()}"

    def label_schema(self) -> LabelSchema:
        return super().label_schema() if self.data.task_name == "custom" else find_task(self.data.task_name)

    def file_of(self, part: str) -> Path:
        if self.data.data_dir is None:
            return super().file_of(part)
        return find_file(self.data.data_dir, self.label_schema().split(part))

    def fetches_data(self) -> bool:
        return self.data.download

    def fetch_data(self) -> None:
        data = self.data
        if data.download and data.data_dir is not None and not unset_variable(data.data_dir):
            download_task(data.task_name, data.data_dir, mirrors())

    def needed_files(self) -> dict[str, str]:
        files = super().needed_files()
        return files if self.data.task_name == "custom" else dict.fromkeys(["data_dir"], next(iter(files.values())))

    def fetching(self) -> str:
        return "" if self.data.task_name == "custom" else ", or pass --download to fetch the task's files"


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by the weights and the task's files, and the folder for --download."""
    name = task_name(str(values.get("task_name", "custom")))
    modes = modes_of_files(values, held_out=True)
    values = {**modes, **values}
    usage = usage_in_training(values, *TASK_NAMES)
    implied = modes | implied_settings(values)
    if usage.max_seq_length is not None:
        implied["max_seq_length"] = usage.max_seq_length
    if name == "custom":
        implied |= left_by_training(usage) | implied_decoding(values, usage)
    if values.keys() & set(OWN_FILES):
        implied["task_name"] = "custom"
        implied |= inferred({**implied, **values}) if name == "custom" else {}
    if is_on(values, "download") and name != "custom":
        implied["data_dir"] = data_folder() / "glue" / name
    return implied


_TASK = "bert.labels.task:LabelTask"
ENTRY = EntryPoint(
    script="run_glue.py",
    config_class=GlueConfig,
    task=_TASK,
    recipes=GLUE_RECIPES,
    examples=(
        "--config mrpc --download --from-pretrained-params bert-base-uncased",
        "--train tickets.csv --do-train --do-eval --from-pretrained-params bert-base-uncased --dry-run",
    ),
    inquiries=inquiries(_TASK),
    aliases={"train_file": ("--train",), "eval_file": ("--eval",), "predict_file": ("--predict",)},
    rules=(Rule(implies=_implied),),
    usage="(--config RECIPE | --task-name TASK) [--data-dir DIR | --download] --from-pretrained-params WEIGHTS "
    "--do-train --do-eval",
    description="Fine-tune BERT to classify or rate sentences and pairs of sentences.",
)
